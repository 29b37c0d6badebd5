"""The recipes of CONTRIBUTING.md: each change is made in a copy of the package, in the files it lists, and runs."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n# (?:(line) of )?(simulator/[\w/]+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Places that a line of a recipe goes behind, by file.
PLACES = {"simulator/registry.py": '    "router": Kind("router", "policy", {\n',
          "simulator/domain/columns.py": "REQUESTS = _columns(\n",
          "simulator/results/traits.py": "DERIVED = {\n",
          "simulator/domain/vllm_versions.py": "router_sees_kv=True)}\n"}
EXPERIMENT = """
latency.backend = "linear"
topology.replicas = 2
engine = {num_gpu_blocks = 100, max_model_len = 400}
[workload]
type = "synthetic"
num_requests = 20
arrival = {process = "poisson", rate_per_s = 5.0}
prompt_tokens = {distribution = "constant", tokens = 50}
output_tokens = {distribution = "constant", tokens = 10}
"""

pytestmark = pytest.mark.slow


def recipe(title):
    """Return the number of files that a recipe names, and its blocks: (line or "", file, text)."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.search(rf"^\*\*{re.escape(title)}\*\*.*?(?=^\*\*|^## )", page, re.MULTILINE | re.DOTALL)[0]
    return int(re.search(r"\((\d+) files?\)", section)[1]), BLOCK.findall(section)


@pytest.fixture
def follow(tmp_path):
    """Return a function that follows a recipe in a copy of the package and returns what a run there prints."""
    for folder in ("hardware", "models", "configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for source in (ROOT / "simulator").rglob("*"):
        if source.is_file() and "__pycache__" not in source.parts:
            target = tmp_path / source.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)

    def follow(title, most, *arguments):
        count, blocks = recipe(title)
        assert count == len({file for _, file, _ in blocks}) <= most
        for is_line, file, text in blocks:
            path = tmp_path / file
            old = path.read_text(encoding="utf-8") if is_line else ""
            path.unlink(missing_ok=True)
            assert old.count(PLACES.get(file, "")) == 1 or not is_line
            path.write_text(old.replace(PLACES[file], PLACES[file] + text) if is_line else text, encoding="utf-8")
        (tmp_path / "a.toml").write_text(EXPERIMENT)
        done = subprocess.run([sys.executable, "-m", "simulator", *arguments], cwd=tmp_path, capture_output=True,
                              text=True, env=os.environ | {"PYTHONPATH": str(tmp_path)}, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return follow


def test_a_router(follow, tmp_path):
    follow("A router", 2, "a.toml", "--set", 'cluster.routing.policy="first_open"', "--out", "out")

    replicas = json.loads((tmp_path / "out/summary.json").read_text())["replicas"]
    assert [each["prefix_cache"]["query_tokens"] for each in replicas] == [20 * 50, 0]


def test_a_column(follow):
    assert "whole_tokens" in follow("A column of /requests", 2, "describe", "results table", "requests")


def test_a_column_has_values(follow, tmp_path):
    follow("A column of /requests", 2, "a.toml", "--out", "out")

    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "out/results.h5") as file:
        assert set(file["requests"]["whole_tokens"]) == {60}


def test_a_version_of_vllm(follow, tmp_path):
    follow("A version of vLLM", 1, "a.toml", "--set", 'engine.vllm_version="0.40"', "--out", "out")

    assert 'vllm_version = "0.40"' in (tmp_path / "out/resolved.toml").read_text()
