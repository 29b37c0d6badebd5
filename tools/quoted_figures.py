"""Results that comments and pages quote: compared with the results of now, and written anew.

`python tools/quoted_figures.py [PAGE...]` runs the experiments of tests/docs/figures.toml, which lists the quotes and
explains its keys, prints each stale figure, and writes the present one in its place. The words around a figure are for
people to check: a policy may have lost its advantage.
"""
import argparse
import contextlib
import io
import json
import operator
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import simulator
from simulator import cli
from simulator.config.load import experiment_layers, resolve
from simulator.study.compare import measure, prepare
from simulator.study.compare_file import read_comparison

HOME = Path(__file__).parents[1]
FACTS = HOME / "tests/docs/figures.toml"
SLOT = re.compile(r"\{(?:([\w-]+) )?([\w.+-]+)(?: ([*/]) ([\d.e-]+))?\}")
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
IN_LIST = re.compile(r"\.\d+\.")        # in a path: a place in a list, which overrides cannot name
GAP = r"\s+(?:#\s*)?"           # a line of a comment may end between two words
SCALES = {"*": operator.mul, "/": operator.truediv, None: lambda value, _: value}


class Run(NamedTuple):
    """A run with quoted results; equal ones are run once.

    what : an experiment or a comparison, its path below the project; or the words of a command, {out} an empty folder.
    is_command : `what` is the words of a command.
    changes : JSON of the overrides. without : keys that are deleted, as paths.
    numbers : name, regular expression with a group for a number that the command prints; empty: it prints JSON.
    is_long : takes over two seconds. is_nightly : over a minute.
    """

    what: str
    is_command: bool
    changes: str
    without: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...]
    is_long: bool
    is_nightly: bool = False

    def __str__(self) -> str:
        """Return the run as a person would ask for it."""
        return " ".join([self.what, *(f"{key}={value}" for key, value in json.loads(self.changes).items()),
                         *(f"without {path}" for path in self.without)])


class Figure(NamedTuple):
    """One number of a page, written as `written` from character `start` on.

    metric : path in the results, or a sum of paths. sign, factor : scale of the metric in the words; None: as it is.
    """

    page: str
    start: int
    written: str
    run: Run
    metric: str
    sign: str | None
    factor: str | None

    def now(self, results: Any) -> str:
        """Return the figure by the results of its run, as precise as it is written."""
        value = sum(at(results, path) for path in self.metric.split("+"))
        decimals = len(self.written.partition(".")[2])
        comma = "" if re.match(r"\d{4}", self.written) else ","
        return f"{SCALES[self.sign](value, float(self.factor or 1)):{comma}.{decimals}f}"


class Quote(NamedTuple):
    """Words of a page with slots for figures.

    start, end : their place in the page; -1: not there, or more than once.
    """

    page: str
    words: str
    start: int
    end: int


def at(results: Any, path: str) -> Any:
    """Return the value at a path of dotted keys, and of places in lists; `sum` is of all places.

    Raises
    ------
    KeyError
        The path leads nowhere, or to null.
    """
    if not path:
        return results
    if isinstance(results, list):
        place, _, rest = path.partition(".")
        return sum(at(each, rest) for each in results) if place == "sum" else at(results[int(place)], rest)
    keys = [key for key in results if f"{path}.".startswith(f"{key}.")] if isinstance(results, dict) else []
    key = max(keys, key=len, default=None)      # keys may have dots
    if key is None or results[key] is None:
        raise KeyError(path)
    return at(results[key], path[len(key) + 1:])


def run(order: Run) -> Any:
    """Return the results of a run: summary.json, the metrics of each variant, or numbers of a command."""
    changes = json.loads(order.changes)
    if order.is_command:
        printed = io.StringIO()
        with TemporaryDirectory() as folder, contextlib.redirect_stdout(printed), contextlib.chdir(HOME):
            cli.main([word.replace("{out}", folder) for word in shlex.split(order.what)])
        if not order.numbers:
            return json.loads(printed.getvalue())
        return {name: float(re.search(pattern, printed.getvalue())[1].replace(",", ""))
                for name, pattern in order.numbers}
    file = HOME / order.what
    if "variants" in tomllib.loads(file.read_text(encoding="utf-8")):
        return {name: each.metrics for name, each in measure(prepare(read_comparison(file, changes)))}
    layers = experiment_layers(file, {path: value for path, value in changes.items() if not IN_LIST.search(path)})
    for path, value in changes.items():
        if IN_LIST.search(path):
            table, key = last_of(layers.data, path)
            table[key] = value
    for path in order.without:
        table, key = last_of(layers.data, path)
        del table[key]
    return simulator.run(resolve(layers)).summary


def last_of(data: dict, path: str) -> tuple[dict, str]:
    """Return the table that holds the last key of a path, and that key."""
    *tables, last = path.split(".")
    for name in tables:
        data = data[int(name) if isinstance(data, list) else name]
    return data, last


def facts(file: Path = FACTS) -> dict[str, dict]:
    """Return the tables of figures.toml by page."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def words_of(table: dict) -> Iterator[str]:
    """Yield the quotes of a page; one with `each` is repeated with every name for {each}."""
    for quote in table.get("quotes", ()):
        if isinstance(quote, str):
            yield quote
        else:
            yield from (quote["words"].replace("{each}", name) for name in quote["each"])


def runs_of(page: str, table: dict) -> dict[str, Run]:
    """Return the runs of a page by name; `here` is the page itself, if it is an experiment."""
    runs = {"here": {}} | table.get("runs", {})
    return {name: Run(given.get("command") or given.get("experiment", page), "command" in given,
                      json.dumps(given.get("set", {})), tuple(given.get("without", ())),
                      tuple(given.get("numbers", {}).items()), given.get("is_long", False),
                      given.get("is_nightly", False))
            for name, given in runs.items()}


def pattern_of(words: str) -> str:
    """Return a regular expression of words, over lines."""
    return GAP.join(map(re.escape, re.split(" +", words)))


def found_in(text: str, page: str, table: dict) -> tuple[list[Quote], list[Figure]]:
    """Return the quotes of a page with this text, and their figures in order of place."""
    quotes, figures, runs = [], [], runs_of(page, table)
    for words in words_of(table):
        slots = list(SLOT.finditer(words))
        fixed = map(pattern_of, re.split(SLOT.pattern, words)[::5])
        places = list(re.finditer(f"({NUMBER})".join(fixed), text))
        if len(places) != 1:
            quotes.append(Quote(page, words, -1, -1))
            continue
        quotes.append(Quote(page, words, *places[0].span()))
        for number, slot in enumerate(slots, 1):
            name, metric, sign, factor = slot.groups()
            figures.append(Figure(page, places[0].start(number), places[0][number], runs[name or "here"], metric, sign,
                                  factor))
    return quotes, sorted(figures, key=lambda figure: figure.start)


def corrected(text: str, changes: Iterable[tuple[Figure, str]]) -> str:
    """Return a page with new figures; columns of a table keep their places where two blanks or more are before them."""
    for figure, new in sorted(changes, reverse=True):
        before, after = text[:figure.start], text[figure.start + len(figure.written):]
        wider = len(new) - len(figure.written)
        if wider > 0 and before.endswith(" " * (wider + 1)):
            before = before[:-wider]
        elif wider < 0 and before.endswith("  "):
            before += " " * -wider
        text = before + new + after
    return text


def main() -> int:
    """Write the figures of now into pages; return 1 if words of a quote are not in their page exactly once."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", help="paths below the project; default: all")
    tables = facts()
    pages = parser.parse_args().pages or list(tables)
    if unknown := [page for page in pages if page not in tables]:
        parser.error(f"{FACTS.name} lists no quotes of {', '.join(unknown)}")
    results, lost = {}, 0
    for page in pages:
        text = (HOME / page).read_text(encoding="utf-8")
        quotes, figures = found_in(text, page, tables[page])
        for quote in quotes:
            if quote.start < 0:
                lost = 1
                print(f"{page}: not there, or more than once: {quote.words}")
        changes = []
        for figure in figures:
            if figure.run not in results:
                results[figure.run] = run(figure.run)
            if (new := figure.now(results[figure.run])) != figure.written:
                line = text.count("\n", 0, figure.start) + 1
                print(f"{page}:{line}: {figure.written} is now {new}: {figure.metric} of {figure.run}")
                changes.append((figure, new))
        (HOME / page).write_text(corrected(text, changes), encoding="utf-8")
    return lost


if __name__ == "__main__":
    sys.exit(main())
