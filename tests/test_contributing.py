"""The worked recipe of CONTRIBUTING.md works as it is printed."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import simulator

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|toml|csv)\n(?:# (\S+)\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.ci
@pytest.mark.slow
def test_the_recipe_of_a_first_contribution_runs_as_printed(tmp_path):
    page = (ROOT / "CONTRIBUTING.md").read_text().partition("## A first contribution")[2]
    for language, name, text in BLOCK.findall(page):
        (tmp_path / (name or f"by_deadline.{language}")).write_text(text)

    where = {**os.environ, "PYTHONPATH": str(Path(simulator.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_by_deadline.py"], cwd=tmp_path,
        text=True, capture_output=True, check=False, env=where)

    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
