"""Colours are for people at a terminal who want them."""
import io

import pytest

from simulator.results.colours import coloured


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(("text", "painted"), [
    ("load  1 requests/s offered: stable", "load  1 requests/s offered: \x1b[32mstable\x1b[0m"),
    ("load  1 requests/s offered: growing by 2/s", "load  1 requests/s offered: \x1b[33mgrowing\x1b[0m by 2/s"),
    ("warning: it stood still", "\x1b[33mwarning\x1b[0m: it stood still"),
    ("killed: id 0, seed 1", "\x1b[31mkilled\x1b[0m: id 0, seed 1"),
    ("a stable name\nno warning here", "a stable name\nno warning here")])
def test_verdicts_are_coloured_on_a_terminal(text, painted):
    assert coloured(text, Terminal()) == painted


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_nothing_is_coloured_where_nobody_wants_it(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    assert coloured("warning: x", Terminal()) == "warning: x"


def test_nothing_is_coloured_in_a_file():
    assert coloured("warning: x", io.StringIO()) == "warning: x"
