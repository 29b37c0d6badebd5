"""README.md shows what the commands print."""
import re
import shlex
from pathlib import Path

import pytest

from simulator import cli

ROOT = Path(__file__).parents[3]
SHOWN = re.findall(r"^```console\n\$ python -m simulator ((?:fit|capacity) .+)\n((?:.*\n)+?)```",
                   (ROOT / "README.md").read_text(), re.M)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "printed"), SHOWN, ids=[command.split()[0] for command, _ in SHOWN])
def test_readme_shows_what_is_printed(command, printed, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    options = shlex.split(command) + (["--out", str(tmp_path)] if command.startswith("capacity") else [])

    assert cli.main(options) == 0
    assert capsys.readouterr().out.replace(str(tmp_path), "results/capacity_replicas") == printed


def test_readme_shows_both():
    assert [command.split()[0] for command, _ in SHOWN] == ["fit", "capacity"]
