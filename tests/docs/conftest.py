"""The site, built once for all processes of a test run."""
import fcntl
import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from support.pages import ROOT

BUILD = ["-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html"]


class Site(NamedTuple):
    """Its folder, and the warnings of the build."""

    folder: object
    warnings: str


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    for library in ("sphinx", "myst_parser", "jupytext"):
        pytest.importorskip(library, reason="the extra `docs` is not installed")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        warnings = folder.with_suffix(".warnings")
        if not warnings.exists():
            done = subprocess.run([sys.executable, *BUILD, str(ROOT / "docs"), str(folder)], cwd=ROOT,
                                  capture_output=True, text=True, check=False)
            warnings.write_text(done.stderr or "failed" * (done.returncode != 0))
    return Site(folder, warnings.read_text())
