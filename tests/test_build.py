"""What was compiled once is not compiled again."""
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULE = "simulator/answer" + sysconfig.get_config_var("EXT_SUFFIX")

pytestmark = [pytest.mark.slow, pytest.mark.ci,
              pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="needs the sources")]


def lay_out(folder):
    """Make a checkout with no module."""
    for name in ("setup.py", "tools/translate.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "simulator").mkdir()
    (folder / "simulator/__init__.py").touch()


def run_build(folder, *arguments, **environment):
    return subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", *arguments], cwd=folder,
                          env=os.environ | {"SIM_BUILD": "debug"} | environment, capture_output=True, text=True,
                          check=False)


def build(folder, *arguments):
    """Build as setup.py does; return when each object file was written."""
    done = run_build(folder, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: path.stat().st_mtime_ns for path in (folder / "build").rglob("*.o")}


def answer(folder):
    code = "from simulator.answer import answer; print(answer())"
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_one_build_serves_every_place_and_a_change_builds_what_changed(tmp_path):
    lay_out(tmp_path)
    source = tmp_path / "simulator/answer.pyx"
    source.write_text("def answer():\n    return 41\n")

    first = build(tmp_path, "--build-lib", "elsewhere", "--build-temp", "forgotten")        # as pip's editable install
    assert set(first) == {"answer.o", "_cython.o"}
    assert build(tmp_path, "--inplace") == first
    shutil.rmtree(tmp_path / "elsewhere")
    assert build(tmp_path, "--build-lib", "elsewhere") == first
    assert answer(tmp_path) == "41\n" and (tmp_path / "elsewhere" / MODULE).exists()

    source.write_text("def answer():\n    return 42\n")
    later = build(tmp_path, "--inplace")
    assert later["_cython.o"] == first["_cython.o"] and later["answer.o"] > first["answer.o"]
    assert answer(tmp_path) == "42\n"


def test_a_part_is_not_built_where_a_header_that_others_read_has_changed(tmp_path):
    lay_out(tmp_path)
    header = tmp_path / "simulator/record.pxd"
    header.write_text("cdef class Record:\n    cdef int first\n")
    (tmp_path / "simulator/record.pyx").write_text("cdef class Record:\n    pass\n")
    (tmp_path / "simulator/reader.pyx").write_text(
        "from simulator.record cimport Record\ndef read(Record record):\n    return record.first\n")
    (tmp_path / "simulator/other.pyx").write_text("x = 1\n")
    build(tmp_path, "--inplace")

    assert run_build(tmp_path, "--inplace", SIM_ONLY="simulator/record.pyx").returncode == 0    # no header is newer
    header.write_text("cdef class Record:\n    cdef int before, first\n")
    done = run_build(tmp_path, "--inplace", SIM_ONLY="simulator/record.pyx")

    assert done.returncode == 1
    assert done.stderr.strip() == (
        'SIM_ONLY: "simulator/record.pyx" leaves out modules that read changed headers and would crash beside it: '
        "simulator/reader.pyx; build without SIM_ONLY")
    build(tmp_path, "--inplace")
    assert run_build(tmp_path, "--inplace", SIM_ONLY="simulator/record.pyx").returncode == 0


def test_a_part_has_modules(tmp_path):
    lay_out(tmp_path)
    done = run_build(tmp_path, "--inplace", SIM_ONLY="*answer*")
    assert done.returncode == 1
    assert done.stderr.strip() == 'SIM_ONLY: no .pyx file matches "*answer*" from the root of the repository on'


def test_a_fault_of_a_header_that_two_modules_read_ends_the_build(tmp_path):
    lay_out(tmp_path)
    (tmp_path / "simulator/record.pxd").write_text("cdef class Record:\n    cdef unknown first\n")
    for name in ("first", "second"):
        (tmp_path / f"simulator/{name}.pyx").write_text("from simulator.record cimport Record\n")

    done = run_build(tmp_path, "--inplace")

    assert done.returncode == 1
    assert "simulator/record.pxd:2:9: 'unknown' is not a type identifier" in done.stderr
    assert done.stderr.endswith("a module cannot be translated to C: see above\n")
    assert not list((tmp_path / "build").rglob("*.o"))
