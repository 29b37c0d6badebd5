"""The smallest experiment that still shows a fault."""
import copy
from collections.abc import Callable, Iterator
from typing import Any

from lattice.draw import Drawn

MOST_TRIES = 400


def minimal(drawn: Drawn, shows: Callable[[Drawn], bool], most_tries: int = MOST_TRIES) -> Drawn:
    """Return an experiment without what the fault does not need.

    shows : says whether an experiment still has the fault.
    """
    tries, smaller = 0, True
    while smaller:
        smaller = False
        for candidate in _smaller(drawn):
            tries += 1
            if tries > most_tries:
                return drawn
            if shows(candidate):
                drawn, smaller = candidate, True
                break
    return drawn


def _smaller(drawn: Drawn) -> Iterator[Drawn]:
    """Yield experiments with less in them, those that leave out most first."""
    header, *rows = drawn.trace
    uses_trace = drawn.data.get("workload", {}).get("path") == "requests.csv"
    for path in sorted(_paths(drawn.data), key=len):
        yield drawn._replace(data=_without(drawn.data, path))
    if uses_trace:
        size = len(rows) // 2
        while size:
            for begin in range(0, len(rows), size):
                yield drawn._replace(trace=[header, *rows[:begin], *rows[begin + size:]])
            size //= 2
        for column in range(3, len(header)):
            yield drawn._replace(trace=[row[:column] + row[column + 1:] for row in drawn.trace])
    for path, value in _numbers(drawn.data):
        for less in {1, value // 2} if isinstance(value, int) and value > 1 else ():
            yield drawn._replace(data=_with(drawn.data, path, less))


def _paths(table: Any, begin: tuple = ()) -> Iterator[tuple]:
    """Yield the way to each key and each element of a list of tables."""
    items = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for key, inner in items:
        if (*begin, key) not in (("name",), ("workload",), ("workload", "type"), ("workload", "path")):
            yield (*begin, key)
        yield from _paths(inner, (*begin, key))


def _numbers(table: Any) -> list[tuple[tuple, Any]]:
    return [(path, value) for path in _paths(table) if isinstance(value := _at(table, path), int)
            and not isinstance(value, bool)]


def _at(table: Any, path: tuple) -> Any:
    for key in path:
        table = table[key]
    return table


def _without(data: dict, path: tuple) -> dict:
    copied = copy.deepcopy(data)
    del _at(copied, path[:-1])[path[-1]]
    return copied


def _with(data: dict, path: tuple, value: Any) -> dict:
    copied = copy.deepcopy(data)
    _at(copied, path[:-1])[path[-1]] = value
    return copied
