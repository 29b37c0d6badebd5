"""The linters find nothing."""
import subprocess
import sys

import pytest

from style.sources import ROOT

# cython-lint asks pycodestyle about one file at a time, and by a name that only an activated environment knows. Asked
# once about all, with what cython-lint leaves out, it answers in a tenth of the time.
CYTHON = """
import sys
from cython_lint.cython_lint import PYCODESTYLE_CODES
from pycodestyle import _main
sys.argv[1:] = ["--ignore=E116," + ",".join(sorted(PYCODESTYLE_CODES)), "--max-line-length=120",
                "--filename=*.pyx,*.pxd", "simulator"]
_main()
"""
# Without the collector of cycles it takes a fifth less: a run keeps all that it allocates.
WITHOUT_COLLECTOR = """
import gc, sys
gc.disable()
from cython_lint.cython_lint import main
sys.exit(main(["--no-pycodestyle", "simulator"]))
"""
LINTERS = {
    "ruff": ["-m", "ruff", "check", "--quiet", "--output-format=concise", "."],
    "cython_lint": ["-c", WITHOUT_COLLECTOR],
    "pycodestyle": ["-c", CYTHON],
}

SLOW = ("cython_lint", "pycodestyle")


@pytest.mark.parametrize("linter", ["ruff", *(pytest.param(name, marks=pytest.mark.ci) for name in SLOW)])
def test_linter_finds_nothing(linter):
    pytest.importorskip(linter, reason="the linters come with the extra `test`")

    result = subprocess.run([sys.executable, *LINTERS[linter]], cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
