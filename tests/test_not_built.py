"""A checkout that is not built says so, instead of blaming itself."""
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ADVICE = "not built: see README.md, its first command; "


@pytest.fixture(scope="module")
def unbuilt(tmp_path_factory):
    """A checkout as git gives it."""
    folder = tmp_path_factory.mktemp("unbuilt")
    for name in ("simulator", "models", "hardware", "configs", "engines"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    return folder


def python(folder, *arguments):
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", ["configs/quickstart.toml", "validate configs/quickstart.toml", "schema",
                                       "describe latency linear", "compare configs/compare_routers.toml",
                                       "predict configs/quickstart.toml --decode 1"])
def test_every_command_says_in_one_line_that_it_is_not_built(unbuilt, arguments):
    done = python(unbuilt, "-m", "simulator", *arguments.split())

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"simulator: {ADVICE}simulator.") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("line", ["simulator.run('configs/quickstart.toml')", "from simulator import predict",
                                  "import simulator.kv.paged", "import simulator._cython"])
def test_python_gets_an_import_error_that_says_so(unbuilt, line):
    code = f"import simulator\ntry:\n    {line}\nexcept ImportError as error:\n    print(error.name, error)"

    name, _, message = python(unbuilt, "-c", code).stdout.partition(" ")

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert message == f"{ADVICE}{name} is not compiled for Python {version}\n"
    assert name.startswith("simulator.")


def test_a_module_that_does_not_exist_is_python_s_to_refuse(unbuilt):
    done = python(unbuilt, "-c", "import simulator.kv.no_such_module")

    assert done.stderr.endswith("ModuleNotFoundError: No module named 'simulator.kv.no_such_module'\n")
