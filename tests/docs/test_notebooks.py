"""Notebooks run as scripts, from an empty folder, and say what they measured."""
import os
import subprocess
import sys

import pytest

from support.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook, tmp_path):
    for library in ("matplotlib", "pandas"):
        pytest.importorskip(library, reason="notebooks draw charts and use tables")

    done = subprocess.run([sys.executable, "-W", "error", str(notebook)], cwd=tmp_path, capture_output=True, text=True,
                          check=False, env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"})

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "chunks.png").stat().st_size > 10_000
    assert "TTFT p99" in done.stdout


def test_notebooks_are_in_the_percent_format():
    for notebook in NOTEBOOKS:
        text = notebook.read_text()
        assert "format_name: percent" in text
        assert text.count("\n# %% [markdown]\n") >= 3
