"""A study of which some keys could not be read: the others are still checked."""
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from simulator.config.reader import MISSING
from simulator.errors import InputErrors


class Unread(Exception):
    """A check reads a key that could not be read."""


class Partly:
    """Values by name, some unreadable: reading these raises `Unread`.

    Parameters
    ----------
    values : name -> value; `MISSING`: it could not be read. None: no value could be read.
    """

    def __init__(self, values: Mapping[str, Any] | None = None):
        self._values = values or {}

    def __getattr__(self, name: str) -> Any:
        value = self._values.get(name, MISSING)
        if value is MISSING:
            raise Unread(name)
        return value

    def __iter__(self) -> Iterator:
        raise Unread

    def __getitem__(self, place: Any) -> Any:
        raise Unread

    def __len__(self) -> int:
        raise Unread

    def __bool__(self) -> bool:
        raise Unread


def faults_of_checks(checks: Iterable[Callable[[], Iterable[str]]]) -> Iterator[str]:
    """Yield the faults that checks find.

    A check ends where it reads a key that could not be read.
    """
    for check in checks:
        try:
            yield from check()
        except InputErrors as errors:
            yield from errors.faults
        except Unread:
            continue
