"""[study] of kind "capacity": the varied key and its range, and the bounds to hold."""
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator.config.experiment import Section
from simulator.config.words import show
from simulator.errors import InputErrors, number_of
from simulator.study.capacity.bounds import GOODPUT_SHARE, Bounds, Slo, read_bounds
from simulator.study.capacity.search import Span
from simulator.study.capacity.varied import DEFAULTS, RATE, Varied, value_at, varied_of
from simulator.study.sweep.design import Point
from simulator.study.sweep.needs import missing_of
from simulator.study.sweep.partly import faults_of_checks
from simulator.study.sweep.study_file import Share, Statistics, Study, StudyTable

ESTIMATE = "estimate"
FROM, TO = DEFAULTS[False]
MOST_MIXES = 1_000_000

Positive = Annotated[float, Meta(gt=0, le=1e12)]
Replicas = Annotated[int, Meta(ge=0, le=2**20)]


# `from` is no name of an attribute in a class statement.
MixRange = msgspec.defstruct("MixRange", [
    ("from", Annotated[Replicas, Meta(description="least number of replicas")], 0),
    ("to", Annotated[Replicas, Meta(description="largest number of replicas")]),
], bases=(Section,), kw_only=True, frozen=True, namespace={"__doc__": "How many replicas, [[study.mix]]."})


class MixRow(Section, kw_only=True):
    """How many replicas a pool may have, [[study.mix]]."""

    pool: Annotated[str, Meta(min_length=1, description="name of the pool")]
    replicas: Annotated[MixRange, Meta(description="numbers of replicas to try, {from = 0, to = 8}")]


CapacityTable = msgspec.defstruct("CapacityTable", [
    ("vary", Annotated[str | None, Meta(description=(
        f"key of the experiment, or workload.rate_scale, by which arrivals are divided; default: {RATE}"))], None),
    ("goal", Annotated[Literal["max", "min"], Meta(description=(
        "the largest value that passes, or the smallest (replicas)"))], "max"),
    ("from", Annotated[Positive | None, Meta(description=f"least value; default: {FROM}, whole numbers 1")], None),
    ("to", Annotated[Positive | None, Meta(description=f"largest value; default: {TO:g}")], None),
    ("rel_tol", Annotated[Share, Meta(description=(
        "tolerance: of the last value that passes and the first that fails, relative; whole numbers: 1"))], 0.01),
    ("start", Annotated[Positive | Literal["estimate"], Meta(description=(
        "first value; estimate: a full batch over the predicted time to serve it"))], ESTIMATE),
    ("min_seeds", Annotated[int, Meta(ge=1, le=10**4, description="runs of each value, to begin with")], 3),
    ("max_seeds", Annotated[int, Meta(ge=1, le=10**4, description="runs of a value, at most; 1: a run is exact")], 32),
    ("slo", Annotated[Slo, Meta(description=(
        "bounds to hold: keys of summary.json, goodput_share, backlog"))]),
    ("mix", Annotated[tuple[MixRow, ...], Meta(description="pools to find the cheapest mix of, instead of vary")], ()),
    ("mix_factor", Annotated[float, Meta(ge=1, le=100, description=(
        "a mix may serve this factor more than its replicas alone; below the target it is not tried"))], 1.15),
    ("mix_order", Annotated[Literal["price", "gpus"], Meta(description=(
        "order of mixes: by the lowest price, or by the fewest GPUs"))], "price"),
    ("compat", Annotated[Literal["vidur"] | None, Meta(description=(
        "search as Vidur does: queue_ms.p99, one run a value, its bracket and its faults"))], None),
], bases=(StudyTable,), kw_only=True, frozen=True, namespace={
    "__doc__": "How much a deployment can take, [study] with kind = \"capacity\".",
    "checks": staticmethod(lambda study: checks_of(study))})


def checks_of(study: Study) -> tuple[Callable[[], Iterable[str]], ...]:
    """Return checks of combinations of keys of [study]."""
    place = f"{study.file}: study"
    each = (_faults_of_seeds, _faults_of_statistics, _faults_of_vary, _faults_of_needs, _mix_faults, _compat_faults)
    return (lambda: _none(read_bounds(study.settings.slo, f"{place}.slo")), lambda: _none(varied_of(study, place)),
            *(partial(check, study, place) for check in each))


def forecast(study: Study, points: list[Point]) -> list[str]:
    """Return the number of runs of a search, a line each."""
    given, varied = study.settings, varied_of(study, f"{study.file}: study")
    if given.mix:
        count = math.prod(row.replicas.to - getattr(row.replicas, "from") + 1 for row in given.mix)
        lead = f"{number_of(len(given.mix), 'kind')} of replica, each searched for its largest load; {count:,} mixes"
    else:
        lead = f"{number_of(len(points), 'point')}: {varied.key} from {varied.span.low:g} to {varied.span.high:g}"
    values = _most_values(varied.span)
    count = (len(given.mix) or len(points)) * values
    seeds = (1, 1) if given.compat else (given.min_seeds, given.max_seeds)
    return [lead, f"at most about {number_of(values, 'value')} each, of {seeds[0]} to {seeds[1]} runs: "
            f"{count * seeds[0]:,} to {count * seeds[1]:,} runs"]


def _most_values(span: Span) -> int:
    """Return about how many values a search tries, at most: a bracket, its halves, two doubts and a verification."""
    spread, width = max(math.log2(span.high / span.low), 0.0), span.high - span.low
    bracket = math.ceil(spread)
    halves = math.ceil(math.log2(max(width / 2, 1))) if span.is_whole else math.ceil(math.log2(1 / span.rel_tol))
    return min(bracket + halves + 3, int(width) + 2) if span.is_whole else bracket + halves + 3


def _none(read: Any) -> tuple[str, ...]:
    """Return no faults: `read` raises its own."""
    return ()


def check(study: Study) -> tuple[Bounds, Varied]:
    """Return the bounds, and the varied key.

    Raises
    ------
    InputErrors
        All faults in the combination of the keys of [study].
    """
    if faults := list(faults_of_checks(checks_of(study))):
        raise InputErrors(dict.fromkeys(faults))
    place = f"{study.file}: study"
    return read_bounds(study.settings.slo, f"{place}.slo"), varied_of(study, place)


def as_vidur(study: Study) -> Study:
    """Return a study with Vidur's statistics.

    Runs count as a whole, unless a warm-up is given, with any number of requests.
    """
    statistics = study.settings.statistics
    statistics = replace(statistics, min_tail=0.0, warmup=statistics.warmup or "none")
    return study._replace(settings=replace(study.settings, statistics=statistics))


def _faults_of_seeds(study: Study, place: str):
    given = study.settings
    if given.seeds != 1:
        yield f"{place}.seeds: expected none: min_seeds and max_seeds say how many"
    if given.min_seeds > given.max_seeds:
        yield f"{place}.min_seeds: expected at most max_seeds = {given.max_seeds}, found {given.min_seeds}"


def _faults_of_statistics(study: Study, place: str):
    given, idle = study.settings, Statistics()
    if given.run.baseline is not None:
        yield f"{place}.run.baseline: expected none: no point is paired with another"
    if given.statistics.precision:
        yield f"{place}.statistics.precision: expected 0: runs are added until the bounds are decided"
    if given.statistics.metrics != idle.metrics:
        yield f"{place}.statistics.metrics: expected none: they are those of slo"


def _faults_of_vary(study: Study, place: str):
    given = study.settings
    low, high = getattr(given, "from"), given.to
    if low is not None and high is not None and low > high:
        yield f"{place}.from: expected at most to = {high:g}, found {low:g}"
    if given.vary is not None and given.mix:
        yield f"{place}.mix: expected none with vary = {show(given.vary)}: one of the two is asked"
    if any(axis.key == given.vary for axis in study.axes):
        yield f"{place}.axes: {show(given.vary)} is what is varied"


def _faults_of_needs(study: Study, place: str):
    bounds = read_bounds(study.settings.slo, f"{place}.slo").bounds
    return missing_of(study, (each.key for each in bounds), f"{place}.slo")


def _mix_faults(study: Study, place: str):
    names, count = [pool.name for pool in study.base.all_pools() if study.base.pools], 1
    for i, row in enumerate(study.settings.mix):
        here = f"{place}.mix[{i}]"
        if row.pool not in names:
            known = f"one of {', '.join(map(show, names))}" if names else "an experiment with [[pools]]"
            yield f"{here}.pool: there is no pool {show(row.pool)}; expected {known}"
        low, high = getattr(row.replicas, "from"), row.replicas.to
        if low > high:
            yield f"{here}.replicas: expected from <= to, found {low} and {high}"
        else:
            count *= high - low + 1
    asked = [row.pool for row in study.settings.mix]
    if len(set(asked)) < len(asked):
        yield f"{place}.mix: a pool is named twice"
    if asked and value_at(study.plain_base(), RATE) is None:
        yield f"{place}.mix: expected {RATE}, the load that a mix is to carry"
    if asked and study.settings.goal != "max":
        yield f'{place}.goal: expected none with mix, found "{study.settings.goal}"'
    if count > MOST_MIXES:
        yield f"{place}.mix: {count:,} mixes, at most {MOST_MIXES:,}"
    if asked and study.axes:
        yield f"{place}.axes: expected none with mix"


def _compat_faults(study: Study, place: str):
    given = study.settings
    if given.compat is None:
        return
    try:
        bounds = read_bounds(given.slo, "").bounds
    except InputErrors:
        return                                  # reported by another check
    if len(bounds) != 1 or not bounds[0].is_most or bounds[0].key == GOODPUT_SHARE:
        yield f'{place}.compat: "vidur" searches by one bound, {{max = MILLISECONDS}} of queue_ms.p99 there'
    if given.goal != "max" or given.mix:
        yield f'{place}.compat: "vidur" searches for the largest value'
    if not isinstance(given.start, (int, float)):
        yield f'{place}.start: expected a number with compat = "vidur": its bracket is 0 to twice that'
