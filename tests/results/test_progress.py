"""The bar on stderr."""
import io
import os
import pty
import sys
from contextlib import suppress

import pytest

from simulator.results import progress
from simulator.results.progress import Progress, RowProgress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "quiet", "shown"), [
    (Terminal(), False, True), (Terminal(), True, False), (io.StringIO(), False, False)])
def test_a_bar_is_shown_only_on_a_terminal_that_wants_it(monkeypatch, stream, quiet, shown):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "REFRESH_S", 0.0)

    with Progress(200, quiet) as bar:
        bar.show(3_000_000_000, 50)

    assert bool(stream.getvalue()) is shown
    if shown:
        assert "50/200 requests" in stream.getvalue()
        assert "3.0 s simulated" in stream.getvalue()
        assert "x real time" in stream.getvalue()


@pytest.mark.parametrize(("stream", "quiet", "shown"), [
    (Terminal(), False, True), (Terminal(), True, False), (io.StringIO(), False, False)])
def test_rows_are_counted_only_on_a_terminal_that_wants_it(monkeypatch, stream, quiet, shown):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "ROWS_DELAY_S", 0.0)

    with RowProgress(quiet) as bar:
        bar.show(3_000)
        bar.show(4_000)

    assert bool(stream.getvalue()) is shown
    assert not shown or " rows" in stream.getvalue()


def test_the_last_line_stays_also_after_a_short_run(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)

    with Progress(200) as bar:
        bar.end(3_000_000_000, 200)

    assert "100%" in stream.getvalue()
    assert "200/200 requests, 3.0 s simulated" in stream.getvalue()
    assert stream.getvalue().endswith("\n")


def test_a_terminal_that_does_not_tell_its_size_gets_a_bar_of_80_columns(monkeypatch):
    reading, writing = pty.openpty()            # 0 x 0, as under `script`
    with open(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress(200) as bar:
            bar.end(3_000_000_000, 200)
        shown = os.read(reading, 9999)
    with suppress(OSError):                     # EIO: the other side is closed, and all has been read
        while more := os.read(reading, 9999):
            shown += more
    os.close(reading)

    shown = shown.decode()
    lines = [line for line in shown.replace("\n", "\r").split("\r") if "200/200 requests" in line]
    assert 60 < len(lines[-1]) <= 80


def test_no_stream_at_all_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)

    with Progress(200) as bar:
        bar.show(1, 1)
        bar.end(2, 2)
