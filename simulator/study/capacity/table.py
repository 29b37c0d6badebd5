"""[study] of kind "capacity": what is varied, between which bounds, and what must hold."""
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator.config.experiment import Section
from simulator.config.load import plain
from simulator.config.words import show
from simulator.errors import InputErrors, collect_faults
from simulator.study.capacity.bounds import GOODPUT_SHARE, Bounds, read_bounds
from simulator.study.capacity.varied import DEFAULTS, RATE, Varied, value_at, varied_of
from simulator.study.sweep.needs import missing_of
from simulator.study.sweep.study_file import Share, Statistics, Study, StudyTable

ESTIMATE = "estimate"
FROM, TO = DEFAULTS[False]
MOST_MIXES = 1_000_000

Positive = Annotated[float, Meta(gt=0, le=1e12)]


class MixRow(Section, kw_only=True):
    """How many replicas a pool may have, [[study.mix]]."""

    pool: Annotated[str, Meta(min_length=1, description="its name")]
    replicas: Annotated[dict[str, Annotated[int, Meta(ge=0, le=2**20)]], Meta(description="{from = 0, to = 8}")]


# `from` is no name of an attribute in a class statement.
CapacityTable = msgspec.defstruct("CapacityTable", [
    ("vary", Annotated[str | None, Meta(description=(
        f"key of the experiment, or workload.rate_scale, by which arrivals are divided; default: {RATE}"))], None),
    ("goal", Annotated[Literal["max", "min"], Meta(description=(
        "the largest value that passes, or the smallest (replicas)"))], "max"),
    ("from", Annotated[Positive | None, Meta(description=f"least value; default: {FROM}, whole numbers 1")], None),
    ("to", Annotated[Positive | None, Meta(description=f"largest value; default: {TO:g}")], None),
    ("rel_tol", Annotated[Share, Meta(description=(
        "of the last value that passes and the first that fails; whole numbers: 1"))], 0.01),
    ("start", Annotated[Positive | Literal["estimate"], Meta(description=(
        "first value; estimate: a full batch over the predicted time to serve it"))], ESTIMATE),
    ("min_seeds", Annotated[int, Meta(ge=1, le=10**4, description="runs of each value, to begin with")], 3),
    ("max_seeds", Annotated[int, Meta(ge=1, le=10**4, description="runs of a value, at most; 1: a run is exact")], 32),
    ("slo", Annotated[dict[str, Any], Meta(description=(
        "what must hold: keys of summary.json, goodput_share, backlog"))]),
    ("mix", Annotated[tuple[MixRow, ...], Meta(description="pools whose cheapest mix is wanted, instead of vary")], ()),
    ("mix_factor", Annotated[float, Meta(ge=1, le=100, description=(
        "a mix may take so much more than its replicas alone; below the target it is not tried"))], 1.15),
    ("mix_order", Annotated[Literal["price", "gpus"], Meta(description=(
        "which mix is best: of the lowest price, or of the fewest GPUs"))], "price"),
    ("compat", Annotated[Literal["vidur"] | None, Meta(description=(
        "search as Vidur does: queue_ms.p99, one run a value, its bracket and its faults"))], None),
], bases=(StudyTable,), kw_only=True, frozen=True, namespace={"__doc__": "How much a deployment can take, [study]."})


def check(study: Study) -> tuple[Bounds, Varied]:
    """Return the bounds, and what is varied.

    Raises
    ------
    InputErrors
        What the keys of [study] say together, every fault of it.
    """
    place = f"{study.file}: study"
    bounds, varied, _ = collect_faults(
        lambda: _bounds(study, place), lambda: varied_of(study, place), lambda: _refuse(list(_faults(study, place))))
    return bounds, varied


def _bounds(study: Study, place: str) -> Bounds:
    """Return the bounds; those of what no run of the experiment has are refused."""
    bounds = read_bounds(study.settings.slo, f"{place}.slo")
    _refuse(list(missing_of(study, (each.key for each in bounds.bounds), f"{place}.slo")))
    return bounds


def as_vidur(study: Study) -> Study:
    """Return a study whose runs are looked at as Vidur does.

    Whole, unless a warm-up is given, and however few requests there are.
    """
    statistics = study.settings.statistics
    statistics = replace(statistics, min_tail=0.0, warmup=statistics.warmup or "none")
    return study._replace(settings=replace(study.settings, statistics=statistics))


def _refuse(faults: list[str]) -> None:
    if faults:
        raise InputErrors(faults)


def _faults(study: Study, place: str):
    given, idle = study.settings, Statistics()
    if given.seeds != 1:
        yield f"{place}.seeds: expected none: min_seeds and max_seeds say how many"
    if given.min_seeds > given.max_seeds:
        yield f"{place}.min_seeds: expected at most max_seeds = {given.max_seeds}, found {given.min_seeds}"
    if given.statistics.precision:
        yield f"{place}.statistics.precision: expected 0: runs are added until the bounds are decided"
    if given.statistics.metrics != idle.metrics:
        yield f"{place}.statistics.metrics: expected none: they are those of slo"
    if given.run.baseline is not None:
        yield f"{place}.run.baseline: expected none: no point is paired with another"
    if given.vary is not None and given.mix:
        yield f"{place}.mix: expected none with vary = {show(given.vary)}: one of the two is asked"
    if any(axis.key == given.vary for axis in study.axes):
        yield f"{place}.axes: {show(given.vary)} is what is varied"
    yield from _mix_faults(study, place)
    if given.compat is not None:
        yield from _compat_faults(study, place)


def _mix_faults(study: Study, place: str):
    names, count = [pool.name for pool in study.base.all_pools() if study.base.pools], 1
    for i, row in enumerate(study.settings.mix):
        here = f"{place}.mix[{i}]"
        if row.pool not in names:
            known = f"one of {', '.join(map(show, names))}" if names else "an experiment with [[pools]]"
            yield f"{here}.pool: there is no pool {show(row.pool)}; expected {known}"
        low, high = row.replicas.get("from", 0), row.replicas.get("to")
        if row.replicas.keys() - {"from", "to"} or high is None or low > high:
            yield f"{here}.replicas: expected {{from = LEAST, to = MOST}}, found {show(row.replicas)}"
        else:
            count *= high - low + 1
    asked = [row.pool for row in study.settings.mix]
    if len(set(asked)) < len(asked):
        yield f"{place}.mix: a pool is named twice"
    if asked and value_at(plain(study.base), RATE) is None:
        yield f"{place}.mix: expected {RATE}, the load that a mix is to carry"
    if asked and study.settings.goal != "max":
        yield f'{place}.goal: expected none with mix, found "{study.settings.goal}"'
    if count > MOST_MIXES:
        yield f"{place}.mix: {count:,} mixes, at most {MOST_MIXES:,}"
    if asked and study.axes:
        yield f"{place}.axes: expected none with mix"


def _compat_faults(study: Study, place: str):
    given = study.settings
    try:
        bounds = read_bounds(given.slo, "").bounds
    except InputErrors:
        return                                  # told already
    if len(bounds) != 1 or not bounds[0].is_most or bounds[0].key == GOODPUT_SHARE:
        yield f'{place}.compat: "vidur" searches by one bound, {{max = MILLISECONDS}} of queue_ms.p99 there'
    if given.goal != "max" or given.mix:
        yield f'{place}.compat: "vidur" searches for the largest value'
    if not isinstance(given.start, (int, float)):
        yield f'{place}.start: expected a number with compat = "vidur": its bracket is 0 to twice that'
