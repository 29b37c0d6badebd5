"""Makes the helpers importable, builds the lower bound and loops, and prints the table of results."""
import os
import subprocess
import sys
import sysconfig
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))              # for the helpers beside this file
sys.path.append(str(BENCH.parent))          # last: an installed simulator is preferred to the checkout

from limit import Limit, Unavailable  # noqa: E402 -- needs the path
from pairs import Pairs  # noqa: E402
from report import Report  # noqa: E402

import simulator  # noqa: E402

REPORT = pytest.StashKey[Report]()


def pytest_configure(config):
    config.stash[REPORT] = Report()


def pytest_terminal_summary(terminalreporter, config):
    if config.stash[REPORT].rows:
        terminalreporter.section("what it costs")
        for line in config.stash[REPORT].lines():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def report(pytestconfig):
    return pytestconfig.stash[REPORT]


@pytest.fixture(scope="session")
def limit(tmp_path_factory):
    """Return the lower bound, built."""
    try:
        return Limit(tmp_path_factory.mktemp("limit"))
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def pairs(benchmark):
    return Pairs(benchmark)


@pytest.fixture(scope="session")
def operations(tmp_path_factory):
    """Return the module built from operations.pyx, with the flags of a release."""
    folder = tmp_path_factory.mktemp("operations")
    (folder / "operations.pyx").write_bytes((BENCH / "operations.pyx").read_bytes())
    package_parent = str(Path(simulator.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", "operations.pyx"], cwd=folder, check=True,
        capture_output=True, env={**os.environ, "CFLAGS": "-O3 -ffp-contract=off", "PYTHONPATH": package_parent})
    [library] = folder.glob("*" + sysconfig.get_config_var("EXT_SUFFIX"))
    spec = spec_from_file_location("operations", library)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
