"""A package of another author: built as a wheel against ours, installed and run where no checkout is."""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import simulator
from simulator import registry
from simulator.errors import InputErrors
from test_packaging import installed, python, wheel

__all__ = ["installed", "wheel"]        # fixtures

STRANGER = Path(__file__).with_name("stranger")
ROOT = Path(__file__).resolve().parents[1]
EXPERIMENT = """
latency.backend = "linear"
topology.replicas = 3
engine = {scheduler = "lifo", num_gpu_blocks = 200, max_model_len = 400}
cluster.routing.policy = "first_open"
[workload]
type = "synthetic"
num_requests = 50
arrival = {process = "poisson", rate_per_s = 20.0}
prompt_tokens = {distribution = "constant", tokens = 50}
output_tokens = {distribution = "constant", tokens = 10}
"""
# Public declarations of the headers that other packages compile against, at API_VERSION 1.
HEADERS = ("routing/base.pxd", "scheduling/base.pxd", "latency/base.pxd", "collective/base.pxd",
           "kv/tiers/eviction.pxd")
DIGEST = (1, "1da99860d41c414c")


@pytest.fixture
def lab(tmp_path_factory, installed):
    """Build the package as a wheel against the installed simulator; return an environment that has both."""
    source, site = tmp_path_factory.mktemp("stranger") / "source", tmp_path_factory.mktemp("lab")
    shutil.copytree(STRANGER, source)
    done = subprocess.run([sys.executable, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", str(site)], cwd=source,
                          env=installed["env"] | {"CFLAGS": "-O0"}, capture_output=True, text=True, check=False)
    if not any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang")):
        pytest.skip("no C compiler")
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next(site.glob("*.whl"))) as archive:
        archive.extractall(site)
    paths = f"{installed['site']}{os.pathsep}{site}"
    return installed | {"env": installed["env"] | {"PYTHONPATH": paths}}


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="needs the sources")
def test_a_strangers_package_is_built_installed_and_run(lab, tmp_path):
    (tmp_path / "a.toml").write_text(EXPERIMENT)
    python(lab, "-m", "simulator", str(tmp_path / "a.toml"), "--out", str(tmp_path / "out"), "--quiet")

    assert python(lab, "-m", "simulator", "list", "router").splitlines()[-1] == "first_open"
    assert "newest request first" in python(lab, "-m", "simulator", "describe", "scheduler", "lifo")
    requests = simulator.load_results(tmp_path / "out").requests
    assert set(requests["replica"].tolist()) == {0}
    assert (requests["completed_ns"] > 0).all()
    python(lab, "-c", "from simulator.testing import check_router, check_scheduler\n"
                      "check_router('first_open')\ncheck_scheduler('lifo')")


def test_a_name_that_no_package_has_is_refused():
    with pytest.raises(InputErrors, match='no router "first_opne"'):
        registry.load("router", "first_opne")


def test_a_class_built_for_other_headers_is_refused(tmp_path, monkeypatch):
    (tmp_path / "old_lab.py").write_text(
        "from simulator.latency.python_model import PythonLatencyModel\n\n\nclass Old(PythonLatencyModel):\n"
        "    API_VERSION = 0\n\n    def batch_us(self, shape):\n        return 1.0\n")

    with pytest.raises(InputErrors, match="built for API_VERSION 0 of the simulator, this one has 1: build it again"):
        registry.load("latency", "old_lab:Old", [str(tmp_path)])


def declarations(header):
    """Return the declarations of a header without comments and private names, in order."""
    lines = (ROOT / "simulator" / header).read_text(encoding="utf-8").splitlines()
    code = (re.sub(r"\s*#.*", "", line).rstrip() for line in lines)
    return [line for line in code if line and not re.search(r"\b_[a-z]", line)]


def test_headers_change_with_their_version_alone():
    text = "\n".join(line for header in HEADERS for line in [header, *declarations(header)])

    assert (simulator.API_VERSION, hashlib.sha256(text.encode()).hexdigest()[:16]) == DIGEST
