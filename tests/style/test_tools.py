"""The linters find nothing."""
import subprocess
import sys

import pytest

from style.sources import ROOT

LINTERS = {
    "ruff": ["-m", "ruff", "check", "--quiet", "--output-format=concise", "."],
    "cython_lint": ["-m", "cython_lint.cython_lint", "simulator"],
}


@pytest.mark.parametrize("linter", sorted(LINTERS))
def test_linter_finds_nothing(linter):
    pytest.importorskip(linter, reason="the linters come with the extra `test`")

    result = subprocess.run([sys.executable, *LINTERS[linter]], cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
