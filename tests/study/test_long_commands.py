"""Commands that read or write many rows: how far they are, and Ctrl-C."""
import io
import os
import signal
import sys
from pathlib import Path

import pytest

from results.export.runs import small_run
from simulator import cli
from simulator.results import progress
from simulator.results.progress import RowProgress

COMMANDS = {"report": ["report"], "csv": ["export", "--as", "csv"], "vidur": ["export", "--as", "vidur"],
            "blis": ["export", "--as", "blis"]}
ROOT = Path(__file__).resolve().parents[2]
INTERRUPTED = 128 + signal.SIGINT


@pytest.fixture
def results(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures are in the report extra")
    return small_run(tmp_path, **{"output.token_times": True})


@pytest.fixture(params=COMMANDS)
def command(request, results):
    return [*COMMANDS[request.param], str(results)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_shows_the_share_of_the_rows(command, quiet, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "ROWS_DELAY_S", 0.0)

    assert cli.main([*command, *["--quiet"] * quiet]) == 0
    assert ("%|" in terminal.getvalue() and " rows, " in terminal.getvalue()) is not quiet


def test_a_run_with_a_report_shows_it_too(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "ROWS_DELAY_S", 0.0)
    command = ["run", str(ROOT / "configs/quickstart.toml"), "--set", "workload.num_requests=20", "--report"]

    assert cli.main([*command, "--out", str(tmp_path / "a")]) == 0
    assert " rows, " in terminal.getvalue()
    terminal.seek(terminal.truncate(0))
    assert cli.main([*command, "--out", str(tmp_path / "b"), "--quiet"]) == 0
    assert "rows" not in terminal.getvalue()


def test_no_more_rows_come_than_were_expected(command, monkeypatch):
    expected, shown = [], []
    monkeypatch.setattr(RowProgress, "expect", lambda _, number: expected.append(number))
    monkeypatch.setattr(RowProgress, "show", lambda _, number: shown.append(number))

    assert cli.main(command) == 0
    assert 0 < sum(shown) <= sum(expected)


@pytest.mark.usefixtures("heeded_signals")
def test_ctrl_c_leaves_nothing_behind(command, results, monkeypatch):
    assert cli.main(command) == 0
    before = contents(results.parent)
    monkeypatch.setattr(RowProgress, "show", lambda *_: os.kill(os.getpid(), signal.SIGINT))

    assert cli.main([*command, *["--overwrite"] * (command[0] == "export")]) == INTERRUPTED
    assert contents(results.parent) == before


def test_ctrl_c_while_a_page_is_written_leaves_the_old_one(results, monkeypatch):
    def interrupted(path, content):
        with open(path, "wb") as file:
            file.write(content[:100])
        raise KeyboardInterrupt

    assert cli.main(["report", str(results)]) == 0
    before = contents(results.parent)
    monkeypatch.setattr(Path, "write_bytes", interrupted)

    assert cli.main(["report", str(results)]) == INTERRUPTED
    assert contents(results.parent) == before


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
