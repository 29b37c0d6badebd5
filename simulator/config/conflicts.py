"""The table of conflicts: features of an experiment, and the pairs of features that are refused.

A row is data. `faults` evaluates all rows of the modules in `registry.CONFLICTS`; docs/limitations.md lists them.
"""
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from simulator import registry
from simulator.config.experiment import Pool
from simulator.config.layers import Path
from simulator.config.parts import parts_in
from simulator.config.words import show

Fault = tuple[Path, str]
OF_POOL = frozenset(Pool.__struct_fields__)


class Unread(AttributeError):
    """A table or a fact is not known: features that depend on it count as unused."""


class Place:
    """A pool in its experiment, or an experiment without pools.

    Its attributes are the tables of the pool, the other tables of the experiment, and facts of the pool's model.

    Parameters
    ----------
    sections : tables of the experiment; `missing` marks a table that could not be read.
    number : index of the pool in `sections["pools"]`; None: the experiment has no pools.
    facts : fact -> value, known once the model has been read: `in_lock_step`, `layer_groups`; None: not read yet.
    """

    def __init__(self, sections: Mapping[str, Any], missing: object = Unread, number: int | None = None,
                 facts: Mapping[str, Any] | None = None):
        own = {} if number is None else {name: getattr(sections["pools"][number], name) for name in OF_POOL}
        self.path: Path = () if number is None else ("pools", number)
        self.found: dict[Feature, list[tuple[Path, Any]]] = {}
        self._tables = {"role": "both", **sections, **own, **(facts or {})}
        self._missing = missing

    def __getattr__(self, name: str) -> Any:
        value = self._tables.get(name, self._missing)
        if value is self._missing:
            raise Unread(name)
        return value


class Feature(NamedTuple):
    """A setting that may be in use, named once for all rows.

    title : noun phrase, for docs/limitations.md.
    key : dotted key that messages name; `[]` means each item of a list.
    off : value of the key, or tuple of values, with which the feature is not in use; None: absent.
    value : place -> value of the key, in place of the value in the file; None, False: not in use.
    phrase : how messages refer to it as the other feature; empty: by key and value.
    is_absent : see `without`.
    """

    title: str
    key: str
    off: Any = None
    value: Callable[[Place], Any] | None = None
    phrase: str = ""
    is_absent: bool = False

    @property
    def is_of_pool(self) -> bool:
        """Whether each pool has a value of its own."""
        return self.key.split(".")[0] in OF_POOL

    def found_in(self, place: Place) -> list[tuple[Path, Any]]:
        """Return (path, value) of each use of the feature; empty: it is not in use."""
        if self not in place.found:
            unused = (None, (), False) if self.off is None else (None, (), *_options(self.off))
            try:
                pairs = [*_walk(place, self.key.split("."))] if self.value is None else [
                    (tuple(self.key.split(".")), self.value(place))]
            except Unread:
                pairs = []
            place.found[self] = [pair for pair in pairs if not any(pair[1] is no or pair[1] == no for no in unused)]
        return place.found[self]


def without(feature: Feature, phrase: str = "") -> Feature:
    """Return the feature of lacking another one, for rows of settings that need it."""
    return feature._replace(is_absent=True, phrase=phrase or feature.phrase)


class Conflict(NamedTuple):
    """A pair of features that is refused, with a message on the key of the first.

    feature, other : if one belongs to pools, the row is about each pool; else about the experiment.
    why : the reason; or place -> reason, empty if the pair goes together there.
    text : the reason in docs/limitations.md where `why` depends on the place.
    """

    feature: Feature
    other: Feature
    why: str | Callable[[Place], str]
    text: str = ""

    def faults(self, places: Sequence[Place]) -> Iterator[Fault]:
        """Yield the faults of an experiment, given all its places."""
        is_of_pool, others = self.feature.is_of_pool, [self.other.found_in(place) for place in places]
        if self.other.is_absent and not is_of_pool and any(others):
            return
        for place, other in zip(places, others, strict=True):
            found = self.feature.found_in(place) if bool(other) != self.other.is_absent else ()
            why = found and (self.why if isinstance(self.why, str) else self.why(place))
            for path, value in found if why else ():
                yield (*(place.path if is_of_pool else ()), *path), f"{self._expected(value, other, place)}: {why}"
            if why and not is_of_pool:
                return

    def _expected(self, value: Any, others: list[tuple[Path, Any]], place: Place) -> str:
        allowed = " or ".join("none" if each is None else show(each) for each in _options(self.feature.off))
        usual = {} if self.other.off is None else _options(self.other.off)[0]
        other = self.other.phrase or _named(self.other.key, others[0][1] if others else usual)
        beside = f"without {other}" if self.other.is_absent and self.other.off is None else f"with {other}"
        if place.path and self.other.is_of_pool and not (self.feature.is_of_pool or self.other.is_absent):
            beside += f' in pool "{place.name}"'
        found = f", found {show(value)}" if isinstance(value, str | int | float) else ""
        return f"expected {allowed} {beside}{found}"


class Agreement(NamedTuple):
    """Keys that two pools must share.

    keys : dotted key of a pool -> (pool -> value).
    ask : (pool, pool, experiment's place) -> why the pair must share them; empty: it need not.
    """

    keys: Mapping[str, Callable[[Any], Any]]
    ask: Callable[[Any, Any, Place], str]

    def faults(self, places: Sequence[Place]) -> Iterator[Fault]:
        """Yield the faults of an experiment, given all its places."""
        for i, two in enumerate(places):
            for one in places[:i]:
                if why := self.ask(one, two, two):
                    for key, value in self.keys.items():
                        if value(one) != value(two):
                            yield (*two.path, *key.split(".")), (
                                f'expected {_shown(value(one))}, as in pool "{one.name}", found {_shown(value(two))}: '
                                f"{why}")
                            break


def rows() -> tuple:
    """Return all rows of the table, those of parts last."""
    return (*_of_modules(), *(row for part in registry.parts() for row in part.conflicts))


@cache
def _of_modules() -> tuple:
    return tuple(row for module in registry.CONFLICTS for row in import_module(module).CONFLICTS)


def faults(sections: Mapping[str, Any], missing: object = Unread,
           facts: Iterable[Mapping[str, Any]] = ()) -> Iterator[Fault]:
    """Yield the faults of the rows of all modules, and of the parts in use.

    sections, missing : as `Place` takes them. facts : of each pool; empty: no model has been read.
    """
    numbers, facts = range(len(sections["pools"])) if sections["pools"] else [None], list(facts)
    places = [Place(sections, missing, number, facts[i] if facts else None) for i, number in enumerate(numbers)]
    for row in (*_of_modules(), *(row for part in parts_in(sections, missing) for row in part.conflicts)):
        yield from row.faults(places)


def _options(off: Any) -> tuple:
    return off if isinstance(off, tuple) else (off,)


def _walk(value: Any, parts: list[str], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield (path, value) of a dotted key; keys of a chosen class are in `parameters`."""
    if value is None or not parts:
        yield path, value
        return
    name, is_list = parts[0].removesuffix("[]"), parts[0].endswith("[]")
    inner = getattr(value, name, None)
    if inner is None and (chosen := getattr(value, "parameters", None)) is not None:
        inner = getattr(chosen, name, None)
    for i, item in enumerate(inner or ()) if is_list else ((None, inner),):
        yield from _walk(item, parts[1:], (*path, name) if i is None else (*path, name, i))


def _named(key: str, value: Any) -> str:
    if isinstance(value, str | int | float):
        return f"{key.replace('[]', '')} = {show(value)}"
    return f"[[{key}]]" if isinstance(value, tuple) else f"[{key}]"


def _shown(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else show(value)
