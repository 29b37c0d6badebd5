"""Python faces of what only Cython can call, compiled when a test needs them."""
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import simulator


def build_face(source, folder):
    """Return the module built from a .pyx file; `folder`: an empty one to build in."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not shutil.which(compiler):
        pytest.skip(f"no C compiler ({compiler}) to build {source.name}")
    shutil.copy(source, folder)
    package_parent = str(Path(simulator.__file__).parents[1])
    build = subprocess.run(
        [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", source.name], cwd=folder, text=True,
        env={**os.environ, "CFLAGS": "-O0", "PYTHONPATH": package_parent}, capture_output=True, check=False)
    assert build.returncode == 0, build.stdout + build.stderr
    library = next(path for path in folder.iterdir() if path.name.endswith(sysconfig.get_config_var("EXT_SUFFIX")))
    spec = importlib.util.spec_from_file_location(source.stem, library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
