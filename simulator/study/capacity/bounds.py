"""Bounds of a deployment: numbers of summary.json, a share of good requests, a steady backlog."""
import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args

from msgspec import Meta

from simulator.config.experiment import Section
from simulator.config.fields import table_of
from simulator.config.words import show
from simulator.errors import InputErrors, did_you_mean, nearest
from simulator.results.summary_keys import check_numbers
from simulator.study.telling.screen import figure

GOODPUT_SHARE, BACKLOG = "goodput_share", "backlog"
STABLE, ANY = "stable", "any"
MAY_BE_NEGATIVE = ("in_system.growth_per_s",)          # of the numbers of summary.json
Backlog = Literal["stable", "any"]


class Sides(Section, kw_only=True):
    """A bound of a key of summary.json, [study.slo]; one of the two, or both."""

    max: Annotated[float | None, Meta(description="largest value, in the unit of the key")] = None
    min: Annotated[float | None, Meta(description="least value, in the unit of the key")] = None


class AtLeast(Section, kw_only=True):
    """A bound of the share of good requests, [study.slo.goodput_share]."""

    min: Annotated[float, Meta(gt=0, le=1, description="least share")]


class OwnBounds(Section, kw_only=True):
    """Bounds of [study.slo] that are no keys of summary.json."""

    goodput_share: Annotated[AtLeast | None, Meta(description=(
        "share of the injected requests that kept every bound of [slo]"))] = None
    backlog: Annotated[Backlog, Meta(description=(
        "stable: a queue that grows as long as requests arrive is a miss, too; any: it is not"))] = "stable"


SIDES = tuple(each.name for each in table_of(Sides).fields)
Slo = Annotated[dict[str, Any], Meta(extra={"own": OwnBounds, "under": Sides})]


class Bound(NamedTuple):
    """One bound.

    key : of summary.json, or GOODPUT_SHARE. is_most : values at most `limit` keep it; else at least.
    """

    key: str
    limit: float
    is_most: bool

    def margin(self, value: float) -> float:
        """Return the relative room of a value to the bound.

        Negative: it is beyond.
        """
        room = self.limit - value if self.is_most else value - self.limit
        return room / abs(self.limit) if self.limit else room

    def miss_text(self, value: float) -> str:
        """Return how a value misses the bound, as text."""
        return f"{self.key}: {figure(value)} {'>' if self.is_most else '<'} {figure(self.limit)}"


class Bounds(NamedTuple):
    """All bounds of a study.

    wants_stable : a backlog that grows as long as requests arrive is a miss, too.
    """

    bounds: tuple[Bound, ...]
    wants_stable: bool = True

    @property
    def metrics(self) -> tuple[str, ...]:
        """The keys of summary.json."""
        return tuple(dict.fromkeys(each.key for each in self.bounds if each.key != GOODPUT_SHARE))


def read_bounds(table: Any, place: str) -> Bounds:
    """Return the bounds of a table [study.slo].

    place : name of the table in messages.

    Raises
    ------
    InputErrors
        All faults of the table.
    """
    faults: list[str] = []
    if not isinstance(table, Mapping) or not table:
        raise InputErrors([f'{place}: expected at least one bound, for instance "ttft_ms.p99" = {{max = 500.0}}'])
    table = _dotted(table)
    backlog = table.pop(BACKLOG, STABLE)
    if backlog not in get_args(Backlog):
        faults.append(f'{place}.{BACKLOG}: expected "{STABLE}" or "{ANY}", found {show(backlog)}'
                      f"{nearest(str(backlog), get_args(Backlog))}")
    bounds = [bound for key, sides in table.items() for bound in _bounds_of(key, sides, place, faults)]
    faults += check_numbers((key for key in table if key != GOODPUT_SHARE), place, (GOODPUT_SHARE, BACKLOG))
    if faults:
        raise InputErrors(faults)
    if not bounds:
        raise InputErrors([f'{place}: expected at least one bound beside {BACKLOG}, for instance "ttft_ms.p99" = '
                           "{max = 500.0}"])
    return Bounds(tuple(bounds), backlog == STABLE)


def bounds_of_options(texts: Iterable[str]) -> Bounds:
    """Return the bounds of options --slo.

    texts : `ttft_ms.p99=500`, at most; `goodput_share=0.99` and `KEY>=NUMBER`, at least.

    Raises
    ------
    InputErrors
        All faults of the options.
    """
    table: dict[str, Any] = {}
    faults = []
    for text in texts:
        key, sign, value = _split(text)
        if key == BACKLOG and sign == "=":
            table[BACKLOG] = value
            continue
        try:
            limit = float(value)
        except ValueError:
            faults.append(f"--slo {text}: expected KEY=NUMBER, KEY<=NUMBER or KEY>=NUMBER, for instance "
                          "ttft_ms.p99=500")
            continue
        is_least = sign == ">=" or (sign == "=" and key == GOODPUT_SHARE)
        table.setdefault(key, {})["min" if is_least else "max"] = limit
    if faults:
        raise InputErrors(faults)
    return read_bounds(table, "--slo")


def check_keys(bounds: Bounds, known: Iterable[str], place: str) -> None:
    """Refuse bounds on keys that summary.json does not have.

    Raises
    ------
    InputErrors
        All such keys, each with the nearest existing key.
    """
    known = list(known)
    if faults := [f'{place}: summary.json has no number "{key}"{did_you_mean(key, known)}'
                  for key in bounds.metrics if key not in known]:
        raise InputErrors(faults)


def _split(text: str) -> tuple[str, str, str]:
    for sign in (">=", "<=", "="):
        key, found, value = text.partition(sign)
        if found:
            return key.strip(), sign, value.strip()
    return text, "", ""


def _dotted(table: Mapping, prefix: str = "") -> dict[str, Any]:
    """Return a table by dotted keys, down to {max, min}: TOML reads a key without quotes as nested tables."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        is_inner = isinstance(value, Mapping) and value and not any(side in value for side in SIDES)
        if is_inner and any(isinstance(each, Mapping) for each in value.values()):
            found |= _dotted(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _bounds_of(key: str, sides: Any, place: str, faults: list[str]) -> list[Bound]:
    label = f'{place}."{key}"'
    if not isinstance(sides, Mapping) or not sides:
        faults.append(f"{label}: expected {{max = NUMBER}} or {{min = NUMBER}}, found {show(sides)}")
        return []
    found = []
    for side, limit in sides.items():
        if side not in SIDES:
            faults.append(f"{label}.{side}: unknown key{did_you_mean(side, SIDES)}; expected max or min")
        elif isinstance(limit, bool) or not isinstance(limit, (int, float)) or not math.isfinite(limit):
            faults.append(f"{label}.{side}: expected a finite number, found {show(limit)}")
        elif limit < 0 and key not in MAY_BE_NEGATIVE:
            faults.append(f"{label}.{side}: expected a number >= 0, found {show(limit)}: no {key} is below 0")
        elif key == GOODPUT_SHARE and not (side == "min" and 0 < limit <= 1):
            faults.append(f"{label}: expected {{min = SHARE}} above 0 and at most 1, found {{{side} = {show(limit)}}}")
        else:
            found.append(Bound(key, float(limit), side == "max"))
    return found
