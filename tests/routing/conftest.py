"""Compile what stands in compiled/ once."""
import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import simulator

SOURCES = sorted(Path(__file__).with_name("compiled").glob("*.pyx"))


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Return the folder with the built modules, which can be imported."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not shutil.which(compiler):
        pytest.skip(f"no C compiler ({compiler}) to build the examples")
    folder = tmp_path_factory.mktemp("compiled_routing")
    for source in SOURCES:
        shutil.copy(source, folder)
    build = subprocess.run(
        [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", *(source.name for source in SOURCES)],
        cwd=folder, text=True, capture_output=True, check=False,
        env={**os.environ, "CFLAGS": "-O0", "PYTHONPATH": str(Path(simulator.__file__).parents[1])})
    assert build.returncode == 0, build.stdout + build.stderr
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def filled_view(compiled):
    """Return a function that makes a view of so many replicas with caches {(replica, row): blocks}."""
    def make(num_replicas, cached):
        view = importlib.import_module("filled_view").FilledView(num_replicas)
        view.cached = cached
        return view
    return make
