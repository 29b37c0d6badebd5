"""The table of conflicts: features of an experiment, and the pairs of features that are refused.

A row is data. `faults` evaluates all rows of the modules in `registry.CONFLICTS`; docs/limitations.md lists them.
"""
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, reduce
from importlib import import_module
from itertools import combinations
from typing import Any, NamedTuple

from simulator import registry
from simulator.config.experiment import Experiment, Pool
from simulator.config.layers import Path
from simulator.config.parts import parts_in
from simulator.config.reader import dotted
from simulator.config.words import show
from simulator.errors import InputErrors, KeyFault

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
    known : fact -> function that returns it, once models may be read: `is_in_lock_step`, `layer_groups`, and the
        classes `scheduler` and `backend`; None: not yet.
    """

    def __init__(self, sections: Mapping[str, Any], missing: object = Unread, number: int | None = None,
                 known: Mapping[str, Callable[[], Any]] | None = None):
        own = {} if number is None else {name: getattr(sections["pools"][number], name) for name in OF_POOL}
        self.path: Path = () if number is None else ("pools", number)
        self.found: dict[Feature, list[tuple[Path, Any]]] = {}
        self._tables = {"role": "both", **sections, **own}
        self._missing, self._known = missing, known or {}

    def __getattr__(self, name: str) -> Any:
        try:
            value = self._known[name]() if name in self._known else self._tables.get(name, self._missing)
        except InputErrors:                 # of the model or its layout: raised again where the pool is built
            raise Unread(name) from None
        if value is self._missing:
            raise Unread(name)
        return value

    @cached_property
    def facts(self):
        """SchedulerFacts of the pool's scheduler."""
        scheduler = self._known["scheduler"]() if self._known else registry.load("scheduler", self.engine.scheduler)
        return scheduler.facts(self.engine.parameters)

    @cached_property
    def backend(self) -> type:
        """Latency backend of the pool."""
        return self._known["backend"]() if self._known else registry.load("latency", self.latency.backend)


class Feature(NamedTuple):
    """A setting that may be in use, named once for all rows.

    title : noun phrase, for docs/limitations.md.
    key : dotted key that messages name; `[]` means each item of a list.
    off : value of the key, or tuple of values, with which the feature is not in use, or place -> such; None: absent.
    value : place -> value of the key, in place of the value in the file; falsy: not in use.
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
            try:
                pairs = [(tuple(self.key.split(".")), self.value(place) or None)] if self.value else _walk(
                    place, self.key.split("."))
                pairs = [pair for pair in pairs if pair[1] is not None and pair[1] != ()]
                place.found[self] = [pair for pair in pairs if pair[1] not in self.options(place)]
            except Unread:
                place.found[self] = []
        return place.found[self]

    def options(self, place: Place) -> tuple:
        """Return the values of the key with which the feature is not in use."""
        off = self.off(place) if callable(self.off) else self.off
        return off if isinstance(off, tuple) else (off,)


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
        is_of_pool, is_absent = self.feature.is_of_pool, self.other.is_absent
        using = [place for place in places if self.feature.found_in(place)]
        if using and is_absent and not is_of_pool and any(map(self.other.found_in, places)):
            return
        for place in using:
            other = self.other.found_in(place)
            why = bool(other) != is_absent and _reason(self.why, place)
            for path, value in self.feature.found_in(place) if why else ():
                yield (*(place.path if is_of_pool else ()), *path), f"{self._expected(value, other, place)}: {why}"
            if why and not is_of_pool:
                return

    def _expected(self, value: Any, others: list[tuple[Path, Any]], place: Place) -> str:
        is_scalar, other = isinstance(value, str | int | float), self.other
        none = "another" if is_scalar and self.feature.value is not None else "none"
        allowed = " or ".join(none if each is None else show(each) for each in self.feature.options(place))
        usual = {} if other.off is None else other.options(place)[0]
        words = other.phrase or _named(other.key, others[0][1] if others else usual)
        beside = f"with{'out' * (other.is_absent and other.off is None)} {words}"
        if place.path and other.is_of_pool and not (self.feature.is_of_pool or other.is_absent):
            beside += f' in pool "{place.name}"'
        return f"expected {allowed} {beside}{f', found {show(value)}' * is_scalar}"


class Agreement(NamedTuple):
    """Keys that two pools must share.

    title, text : the pools, and the reason, in docs/limitations.md.
    keys : dotted keys of a pool; or key -> (place -> value), where the value is not that of the key.
    why : (place, place) -> why the two must share them; empty: they need not.
    """

    keys: Sequence[str] | Mapping[str, Callable[[Place], Any]]
    why: Callable[[Place, Place], str]
    title: str
    text: str

    def faults(self, places: Sequence[Place]) -> Iterator[Fault]:
        """Yield the faults of an experiment, given all its places."""
        for one, two in combinations(places, 2):
            why = _reason(self.why, one, two)
            for key in self.keys if why else ():
                one_value, found = (self._value(place, key) for place in (one, two))
                if one_value != found:
                    is_plain = all(isinstance(each, str | int | float | None) for each in (one_value, found))
                    yield (*two.path, *key.split(".")), (
                        f'expected {f"{_plain(one_value)}, " * is_plain}as in pool "{one.name}"'
                        f'{f", found {_plain(found)}" * is_plain}: {why}')

    def _value(self, place: Place, key: str) -> Any:
        return self.keys[key](place) if isinstance(self.keys, Mapping) else next(_walk(place, key.split(".")))[1]


def rows() -> tuple:
    """Return all rows of the table, those of parts last."""
    return (*_of_modules(), *(row for part in registry.parts() for row in part.conflicts))


@cache
def _of_modules() -> tuple:
    return tuple(row for module in registry.CONFLICTS for row in import_module(module).CONFLICTS)


def faults(sections: Mapping[str, Any], missing: object = Unread,
           known: Sequence[Mapping[str, Callable[[], Any]]] = ()) -> Iterator[Fault]:
    """Yield the faults of the rows of all modules, and of the parts in use.

    sections, missing : as `Place` takes them. known : of each pool, as `Place` takes it; empty: no model was read.
    """
    numbers = range(len(sections["pools"])) if sections["pools"] else [None]
    places = [Place(sections, missing, number, known[i] if known else None) for i, number in enumerate(numbers)]
    for row in (*_of_modules(), *(row for part in parts_in(sections, missing) for row in part.conflicts)):
        yield from row.faults(places)


def refuse(experiment: Experiment, known: Sequence[Mapping[str, Callable[[], Any]]]) -> None:
    """Raise InputErrors for conflicts that are known once models may be read.

    known : of each pool that computes tokens, as `Place` takes it.
    """
    pools = tuple(pool for pool in experiment.pools if pool.role != "encode")
    sections = {name: getattr(experiment, name) for name in experiment.__struct_fields__} | {"pools": pools}
    found = [f"{f'pools.{pools[path[1]].name}.{dotted(path[2:])}' if path[0] == 'pools' else dotted(path)}: {message}"
             for path, message in faults(sections, known=known)]
    if found:
        raise InputErrors(map(KeyFault, found))


def _reason(why: str | Callable[..., str], *places: Place) -> str:
    """Return a reason; empty: there is none, or it depends on something unread."""
    try:
        return why if isinstance(why, str) else why(*places)
    except Unread:
        return ""


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


def table_at(place: Place, path: str) -> Any:
    """Return a table by its dotted name; None: it is absent."""
    return reduce(lambda outer, name: outer and getattr(outer, name), path.split("."), place)


def _named(key: str, value: Any) -> str:
    if isinstance(value, str | int | float):
        return f"{key.replace('[]', '')} = {show(value)}"
    return f"[[{key}]]" if isinstance(value, tuple) else f"[{key}]"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else "none" if value is None else show(value)
