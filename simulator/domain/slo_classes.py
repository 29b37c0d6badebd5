"""SLO classes: urgency of a request, and bounds on its latencies."""
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

# BLIS (inference-sim), sim/admission.go, DefaultSLOPriorityMap; a class without an entry is as urgent as `standard`.
PRIORITIES = {"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}
UNKNOWN_PRIORITY = 3
UNLABELLED = "standard"         # the class of requests without a class

BoundMs = Annotated[float, Meta(gt=0)]


class SloClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An SLO class, [[slo.classes]].

    The mean gap between the tokens of a request is its TPOT, so that the gap has no bound of its own.
    """

    name: Annotated[str, Meta(min_length=1, description=(
        "name of the class, as in the column slo_class of the workload"))]
    priority: Annotated[Annotated[int, Meta(ge=-100, le=100)] | None, Meta(description=(
        "priority; the highest is the most urgent, below 0 may be shed; default: critical 4, standard 3, batch -1, "
        "sheddable -2, background -3, others 3"))] = None
    ttft_ms: Annotated[BoundMs | None, Meta(description=(
        "time to first token; also sets the deadlines of the gateway's order slo_deadline; default: that of "
        "[slo]"))] = None
    tpot_ms: Annotated[BoundMs | None, Meta(description=(
        "time per output token after the first; default: that of [slo]"))] = None
    e2el_ms: Annotated[BoundMs | None, Meta(description="end-to-end latency; default: that of [slo]")] = None


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Service level objectives of a request; None: no objective."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2el_ms: float | None = None


def priority_of(each: SloClass) -> int:
    """Return the priority of a class, as given or by its name."""
    return PRIORITIES.get(each.name, UNKNOWN_PRIORITY) if each.priority is None else each.priority


def by_name(given: Iterable[SloClass]) -> dict[str, SloClass]:
    """Return the classes that were given, then those known by their name alone.

    Raises
    ------
    ValueError
        Two of one name.
    """
    given = list(given)
    classes = {each.name: each for each in given}
    if len(classes) < len(given):
        twice = next(each.name for i, each in enumerate(given) if each.name in {other.name for other in given[:i]})
        raise ValueError(f'classes: two are named "{twice}"')
    return classes | {name: SloClass(name=name) for name in PRIORITIES if name not in classes}


def class_of(name: str | None, classes: dict[str, SloClass]) -> SloClass:
    """Return the class of requests that carry this name; None: they carry none."""
    name = UNLABELLED if name is None else name
    return classes.get(name) or SloClass(name=name)


def bounds_of(each: SloClass, general: object) -> Bounds:
    """Return the bounds of a class, and those of [slo] where it gives none.

    general : object with `ttft_ms`, `tpot_ms`, `e2el_ms`, the Struct of [slo].
    """
    return Bounds(**{name: getattr(general, name) if getattr(each, name) is None else getattr(each, name)
                     for name in Bounds.__struct_fields__})
