"""Compile the Python face of the KV caches once."""
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import simulator

SOURCE = Path(__file__).with_name("kv_face.pyx")


@pytest.fixture(scope="session")
def kv_face(tmp_path_factory):
    """Return the module built from kv_face.pyx."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not shutil.which(compiler):
        pytest.skip(f"no C compiler ({compiler}) to build the face of the KV caches")
    folder = tmp_path_factory.mktemp("kv_face")
    shutil.copy(SOURCE, folder)
    package_parent = str(Path(simulator.__file__).parents[1])
    build = subprocess.run(
        [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", SOURCE.name], cwd=folder, text=True,
        env={**os.environ, "CFLAGS": "-O0", "PYTHONPATH": package_parent}, capture_output=True, check=False)
    assert build.returncode == 0, build.stdout + build.stderr
    library = next(path for path in folder.iterdir() if path.name.endswith(sysconfig.get_config_var("EXT_SUFFIX")))
    spec = importlib.util.spec_from_file_location("kv_face", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
