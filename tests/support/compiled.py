"""Compile examples against the installed simulator."""
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import simulator


def built(sources, folder):
    """Compile .pyx files in a folder, which can be imported from then on; skip where there is no compiler."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not shutil.which(compiler):
        pytest.skip(f"no C compiler ({compiler}) to build the examples")
    for source in sources:
        shutil.copy(source, folder)
    build = subprocess.run(
        [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", *(source.name for source in sources)],
        cwd=folder, text=True, capture_output=True, check=False,
        env={**os.environ, "CFLAGS": "-O0", "PYTHONPATH": str(Path(simulator.__file__).parents[1])})
    assert build.returncode == 0, build.stdout + build.stderr
    sys.path.append(str(folder))
