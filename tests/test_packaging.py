"""What is shipped works without the checkout."""
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("bench", "configs", "hardware", "models", "simulator", "tests")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="needs the sources")]


def setup(*arguments):
    """Run setup.py; commands share their options, so that `build --build-lib` holds for `bdist_wheel`."""
    command = [sys.executable, "setup.py", "--quiet", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of this checkout. Modules built in place are taken over; the build renews those that are out of date."""
    # Folders of its own: suites that run at once, or workers of one, do not meet in build/bdist.*.
    build, dist, info, wheel = (tmp_path_factory.mktemp(folder) for folder in ("build", "dist", "info", "wheel"))
    for module in (ROOT / "simulator").rglob("*.so"):
        target = build / module.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(module, target)
    setup("egg_info", "--egg-base", info, "build", "--build-lib", build, "bdist_wheel", "--bdist-dir", wheel,
          "--dist-dir", dist)
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The environment of a process that sees the wheel, installed in a folder of its own, and no checkout."""
    target, elsewhere = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("elsewhere")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return {"cwd": elsewhere, "env": os.environ | {"PYTHONPATH": str(target)}, "site": target}


def python(installed, *arguments):
    return subprocess.run([sys.executable, *arguments], cwd=installed["cwd"], env=installed["env"],
                          capture_output=True, text=True, check=True).stdout


def test_wheel_holds_every_module_header_and_fact(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    python_files = {str(path.relative_to(ROOT)) for path in (ROOT / "simulator").rglob("*.py")}
    headers = {str(path.relative_to(ROOT)) for path in (ROOT / "simulator").rglob("*.p[xy][di]")}
    facts = {f"simulator/_facts/{path.relative_to(ROOT)}" for folder in ("models", "hardware")
             for path in (ROOT / folder).rglob("*.toml")}
    compiled = {str(path.relative_to(ROOT).with_suffix("")) for path in (ROOT / "simulator").rglob("*.pyx")}

    assert python_files | headers | facts | {"simulator/py.typed"} <= names
    assert compiled | {"simulator/_cython"} == {name.partition(".")[0] for name in names if name.endswith(".so")}


def test_wheel_holds_nothing_else_of_the_checkout(wheel):
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0].split("-")[0] for name in names} == {"simulator"}
    assert not [name for name in names if name.endswith((".c", ".pyx"))]


def test_installed_package_is_used_and_finds_its_facts(installed):
    place = python(installed, "-c", "import simulator; print(simulator.__file__)")
    listed = python(installed, "-m", "simulator", "list", "models")

    assert Path(place.strip()).is_relative_to(installed["site"])
    assert {path.stem for path in (ROOT / "models").glob("*.toml")} <= set(listed.split())


def test_installed_package_runs_an_experiment(installed):
    python(installed, "-m", "simulator", str(ROOT / "configs/quickstart.toml"), "--out", "results", "--quiet")

    assert (installed["cwd"] / "results/summary.json").exists()


def test_source_distribution_is_complete(tmp_path):
    setup("egg_info", "--egg-base", tmp_path, "sdist", "--dist-dir", tmp_path)

    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    sources = {str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")
               if path.suffix in {".py", ".pyx", ".pxd", ".toml", ".md"}}
    assert sources | {"setup.py", "pyproject.toml", "README.md", "LICENSE", "simulator/py.typed"} <= shipped
    assert not [name for name in shipped if name.endswith((".c", ".so", ".pyc"))]
