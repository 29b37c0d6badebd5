"""README.md shows what the command prints."""
import re
from pathlib import Path

import pytest

from simulator import cli

ROOT = Path(__file__).parents[3]
SHOWN = re.search(r"^```console\n\$ python -m simulator tune (\S+)\n((?:.*\n)+?)```",
                  (ROOT / "README.md").read_text(), re.MULTILINE)


@pytest.mark.slow
def test_readme_shows_what_is_printed(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)

    assert cli.main(["tune", SHOWN[1], "--jobs", "1", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.replace(str(tmp_path), "results/tune_layouts") == SHOWN[2]
