"""The bar on stderr."""
import io
import sys

import pytest

from simulator.results import progress
from simulator.results.progress import Progress


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
