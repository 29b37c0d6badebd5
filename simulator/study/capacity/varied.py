"""The varied key: its values, and their assignments."""
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from simulator.config.fields import alternatives, node_of
from simulator.config.keys import Key, keys, named
from simulator.config.words import show
from simulator.errors import InputErrors, did_you_mean, nearest
from simulator.study.capacity.search import Span
from simulator.study.sweep.study_file import Study

RATE = "workload.arrival.rate_per_s"
RATE_SCALE, TIME_SCALE = "workload.rate_scale", "workload.time_scale"
DEFAULTS = {False: (0.1, 1000.0), True: (1, 1000)}          # least and largest value; by `is_whole`


class Varied(NamedTuple):
    """The key that a search varies.

    key : of the experiment, or RATE_SCALE. now : its value in the experiment; None: it has no number.
    """

    key: str
    span: Span
    now: float | None

    def assignment(self, value: float) -> dict[str, Any]:
        """Return the assignment of a value; arrivals are divided by a rate scale."""
        if self.key == RATE_SCALE:
            return {TIME_SCALE: (self.now or 1.0) / value}
        return {self.key: value}

    @property
    def is_rate(self) -> bool:
        """Whether its values are requests a second."""
        return self.key == RATE


def varied_of(study: Study, place: str) -> Varied:
    """Return the key that a study varies.

    place : name of [study] in messages.

    Raises
    ------
    InputErrors
        An unknown key or one without an order; invalid bounds.
    """
    given = study.settings
    key = given.vary or (RATE_SCALE if study.base.workload.type == "trace" and not given.mix else RATE)
    known = TIME_SCALE if key == RATE_SCALE else key
    found = value_at(study.plain_base(), known)
    is_whole = _is_whole(known, f"{place}.vary") if found is None else isinstance(found, int)
    low, high = (default if bound is None else bound for bound, default in zip(
        (getattr(given, "from"), given.to), DEFAULTS[is_whole], strict=True))
    faults = []
    if low > high:
        faults.append(f"{place}.from: expected at most to = {high:g}, found {low:g}")
    if is_whole and (low != int(low) or high != int(high)):
        faults.append(f"{place}.from: expected whole numbers from 1, as {key} takes them; found {low:g} to {high:g}")
    if key == RATE_SCALE and found is None:
        faults.append(f"{place}.vary: {show(key)} divides the arrivals of workloads that have time_scale; type = "
                      f"{show(study.base.workload.type)} has none")
    if faults:
        raise InputErrors(faults)
    if is_whole:
        low, high = int(low), int(high)
    return Varied(key, Span(low, high, given.rel_tol, is_whole, given.goal == "min"), found)


def value_at(table: Mapping[str, Any], key: str) -> float | None:
    """Return the number at a dotted key of a table; None: there is none."""
    place: Any = table
    for part in key.split("."):
        if isinstance(place, list) and part.isdecimal() and int(part) < len(place):
            place = place[int(part)]
        elif isinstance(place, Mapping) and part in place:
            place = place[part]
        else:
            return None
    return place if isinstance(place, (int, float)) and not isinstance(place, bool) else None


def _is_whole(key: str, place: str) -> bool:
    """Return whether a key takes whole numbers only."""
    plain_key = ".".join(part for part in key.split(".") if not part.isdecimal())
    found = [each for each in named(key) if each.name == plain_key]
    if not found:
        numbers = dict.fromkeys(each.name for each in keys() if _is_number(each))
        ends_alike = [name for name in numbers if name.rpartition(".")[2] == key.rpartition(".")[2]]
        sections = dict.fromkeys(name.partition(".")[0] for name in numbers)
        own = [name for name in numbers if name.partition(".")[0] == key.partition(".")[0]]
        close = nearest(key, ends_alike) or nearest(key, numbers) or did_you_mean(key, own or sections)
        raise InputErrors([f"{place}: no key {show(key)}{close}; `simulator list keys` lists them"])
    nodes = [node for each in found for node in _nodes(each)]
    if not any(map(_is_number, found)):
        raise InputErrors([f"{place}: {show(key)} is no number: only what has an order can be searched"])
    return not any(isinstance(node, msgspec.inspect.FloatType) for node in nodes)


def _nodes(key: Key) -> list[msgspec.inspect.Type]:
    return [node_of(option) for option in alternatives(key.field.hint)]


def _is_number(key: Key) -> bool:
    return any(isinstance(node, (msgspec.inspect.IntType, msgspec.inspect.FloatType)) for node in _nodes(key))
