"""What is shipped works without the checkout, and without a compiler."""
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import tomli
from packaging.requirements import Requirement

from simulator.shell import examples

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("bench", "configs", "hardware", "models", "simulator", "tests")

PYPROJECT = tomli.loads((ROOT / "pyproject.toml").read_text())
COMPILERS = ("cc", "c99", "gcc", "clang", "make")

pytestmark = [pytest.mark.slow, pytest.mark.ci,
              pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="needs the sources")]


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
    facts = {f"simulator/_facts/{path.relative_to(ROOT)}" for folder in ("models", "hardware", "configs", "engines")
             for path in (ROOT / folder).rglob("*.toml") if "results" not in path.parts}
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "simulator/study/exploring/page").iterdir()}
    compiled = {str(path.relative_to(ROOT).with_suffix("")) for path in (ROOT / "simulator").rglob("*.pyx")}

    assert python_files | headers | facts | pages | {"simulator/py.typed"} <= names
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


def test_installed_package_hands_out_every_example_as_the_checkout_does(installed, tmp_path):
    handed_out = tmp_path / "wheel"
    python(installed, "-c", "import sys; from simulator.shell import examples\n"
           "for name in examples.names(): examples.write(name, f'{sys.argv[1]}/{name}')", handed_out)

    for name in examples.names():
        examples.write(name, tmp_path / "checkout" / name)
    assert {path.name for path in handed_out.iterdir()} == {path.stem for path in (ROOT / "configs").glob("*.toml")}
    assert contents(handed_out) == contents(tmp_path / "checkout")


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_installed_package_runs_an_experiment(installed):
    python(installed, "-m", "simulator", str(ROOT / "configs/quickstart.toml"), "--out", "results", "--quiet")

    assert (installed["cwd"] / "results/summary.json").exists()


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """A virtual environment with the wheel and what it depends on alone, and no compiler: folder, environment."""
    packed, home = tmp_path_factory.mktemp("packed"), tmp_path_factory.mktemp("bare")
    left, seen = list(PYPROJECT["project"]["dependencies"]), set()
    while left:
        requirement = Requirement(left.pop())
        if requirement.name not in seen and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            seen.add(requirement.name)
            left += pack(requirement.name, packed)
    subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
    environment = {"PATH": str(home / "venv/bin"), "HOME": str(home), "PIP_CONFIG_FILE": os.devnull}
    in_bare(home, environment, f"python -m pip install --quiet --no-compile --no-index --find-links {packed} {wheel}")
    return home, environment


def pack(name, folder):
    """Write the wheel again that a distribution was installed from, less its scripts; return what it requires."""
    distribution = importlib.metadata.distribution(name)
    tags = [line.split()[1].split("-") for line in (distribution.read_text("WHEEL") or "").splitlines()
            if line.startswith("Tag: ")]
    if not tags or distribution.files is None:
        pytest.skip(f"{name} was not installed from a wheel")
    kept = [file for file in distribution.files if ".." not in file.parts and file.suffix != ".pyc"
            and file.name not in ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")]
    record = next(str(file) for file in distribution.files if file.name == "RECORD")
    tag = "-".join(".".join(sorted(set(part))) for part in zip(*tags, strict=True))
    with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-{distribution.version}-{tag}.whl", "w") as archive:
        for file in kept:
            archive.write(file.locate(), str(file))
        archive.writestr(record, "".join(f"{file},,\n" for file in [*kept, record]))
    return distribution.requires or []


def in_bare(home, environment, commands):
    done = subprocess.run(["/bin/sh", "-c", commands], cwd=home, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_bare_environment_has_no_compiler_and_the_package_of_the_wheel(bare):
    home, environment = bare
    place = in_bare(home, environment, "python -c 'import simulator; print(simulator.__file__)'")

    assert not [name for name in COMPILERS if shutil.which(name, path=environment["PATH"])]
    assert Path(place.strip()).is_relative_to(home / "venv")


def test_bare_environment_runs_what_cibuildwheel_tests_wheels_with(bare):
    home, environment = bare
    in_bare(home, environment, " && ".join(PYPROJECT["tool"]["cibuildwheel"]["test-command"]))

    summary = json.loads((home / "results/quickstart/summary.json").read_text())
    assert summary["requests"]["completed"] == 3000
    assert (home / "quickstart.toml").read_bytes() == (ROOT / "configs/quickstart.toml").read_bytes()


def test_a_checkout_in_the_folder_of_a_container_is_not_mistaken_for_the_package(bare):
    home, environment = bare
    (home / "simulator").mkdir()
    (home / "simulator/__init__.py").write_text("raise SystemExit('a checkout')")
    given = re.search(r"^ENV .*?\b(PYTHONSAFEPATH)=(\S+)", (ROOT / "Containerfile").read_text(), re.MULTILINE).groups()
    try:
        assert "quickstart" in in_bare(home, environment | dict([given]), "python -m simulator example")
    finally:
        shutil.rmtree(home / "simulator")


@pytest.mark.parametrize(("ci", "strict"), [("true", "True"), ("", "False")])
def test_wheels_of_cibuildwheel_are_built_as_a_users(ci, strict):
    # It sets CI to nothing, where a service has set it to something.
    given = PYPROJECT["tool"]["cibuildwheel"]["environment"] | ({"CI": ci} if ci else {})
    asked = subprocess.run([sys.executable, "-c", "import setup; print(setup.STRICT)"], cwd=ROOT,
                           env=os.environ | given, capture_output=True, text=True, check=True)

    assert asked.stdout.strip() == strict


def test_what_a_reader_puts_beside_the_experiments_is_not_shipped():
    code = ("import setup; print(sorted(setup.BuildPython.left_out(str(setup.ROOT / 'configs'), "
            "['README.md', 'data', 'linear.toml', 'reproduce', 'results', 'trace.csv', '__pycache__'])))")
    asked = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert asked.stdout.strip() == "['__pycache__', 'results', 'trace.csv']"


def test_source_distribution_is_complete(tmp_path):
    setup("egg_info", "--egg-base", tmp_path, "sdist", "--dist-dir", tmp_path)

    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    sources = {str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")
               if path.suffix in {".py", ".pyx", ".pxd", ".toml", ".md"}}
    assert sources | {"setup.py", "pyproject.toml", "README.md", "LICENSE", "simulator/py.typed"} <= shipped
    assert not [name for name in shipped if name.endswith((".c", ".so", ".pyc"))]
