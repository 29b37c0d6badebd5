"""Faults that are known and being mended; an entry goes as soon as its fault does."""
import re
from collections.abc import Callable
from typing import Any, NamedTuple


class Known(NamedTuple):
    """A fault that is not told.

    kind : pattern of its kind.
    is_meant : whether an experiment has what it takes.
    """

    kind: str
    is_meant: Callable[[dict[str, Any]], bool]


KNOWN: tuple[Known, ...] = ()


def unknown(data: dict[str, Any], faults: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the first of the faults of an experiment that is none of these, in a list; empty: there is none."""
    return [fault for fault in faults if not is_known(data, fault[0])][:1]


def is_known(data: dict[str, Any], kind: str) -> bool:
    """Say whether a fault of an experiment is one of these."""
    return any(re.match(each.kind, kind) and each.is_meant(data) for each in KNOWN)
