"""Deployments that may be tried: the points of the axes in every layout, as many replicas as fit."""
from collections.abc import Iterator
from typing import Any, NamedTuple

from simulator.config.experiment import Experiment
from simulator.errors import InputErrors
from simulator.study.sweep.bench import num_gpus
from simulator.study.sweep.design import Point, flattened
from simulator.study.sweep.identity import canonical
from simulator.study.sweep.study_file import Study
from simulator.study.tuning.tune_table import AGGREGATED, AS_IT_IS, CONCURRENCY, DISAGGREGATED

REPLICAS = "topology.replicas"
PREFILL, DECODE = "pools.0", "pools.1"
TRANSFER = {"kv_transfer.protocol": "nixl"}
TOO_MANY, FORBIDDEN = "too_many_gpus", "forbidden"


class Candidate(NamedTuple):
    """A deployment that may be tried.

    number : in the order of the axes. layout : as [study] names it. assignment : over the experiment of the study.
    experiment : the resolved one; None: the assignment is invalid. gpus : that it takes at time 0.
    """

    number: int
    layout: str
    assignment: dict[str, Any]
    experiment: Experiment | None
    gpus: int


class Dropped(NamedTuple):
    """A candidate that is not run, and why.

    kind : "too_many_gpus", "forbidden", "memory" or "bound".
    """

    candidate: Candidate
    kind: str
    why: str


class Candidates(NamedTuple):
    """Candidates to try, and candidates dropped on the way."""

    kept: list[Candidate]
    dropped: list[Dropped]


def candidates_of(study: Study, points: list[Point]) -> Candidates:
    """Return the candidates at the points of a study.

    Raises
    ------
    InputErrors
        All values of axes with which no candidate is an experiment.
    """
    made, seen, faults = Candidates([], []), set(), _Faults()
    for point in points:
        for layout in _layouts_of(study, point):
            for assignment in _LAYOUTS[layout](study, point):
                for with_users in _with_users(study, assignment):
                    key = canonical([layout, with_users])
                    if key not in seen:
                        seen.add(key)
                        _add(study, made, faults, Candidate(len(seen) - 1, layout, with_users, None, 0))
    faults.check(study.file, len(seen))
    return made


def _layouts_of(study: Study, point: Point) -> tuple[str, ...]:
    """Return the layouts of a point: a listed point with keys that only one layout has is of that one."""
    if study.base.pools:
        return (AS_IT_IS,)
    layouts = study.settings.layouts or (AGGREGATED,)
    if study.settings.design != "list" or len(layouts) == 1:
        return layouts
    if any(key.split(".")[0] in ("pools", "kv_transfer") for key in point):
        return (DISAGGREGATED,)
    return (AGGREGATED,) if REPLICAS in flattened(point) else layouts


def _add(study: Study, made: Candidates, faults: "_Faults", candidate: Candidate) -> None:
    """Resolve a candidate, and keep or drop it."""
    try:
        experiment = study.experiment_of(candidate.assignment, study.seeds[0])
    except InputErrors as errors:
        reasons = [fault.removeprefix(f"{study.file}: ").removeprefix("study: ") for fault in errors.faults]
        faults.add(candidate, reasons)
        made.dropped.append(Dropped(candidate, FORBIDDEN, "; ".join(reasons)))
        return
    faults.pass_(candidate)
    candidate = candidate._replace(experiment=experiment, gpus=num_gpus(experiment))
    most = study.settings.limits.gpus
    if most is not None and candidate.gpus > most:
        made.dropped.append(Dropped(candidate, TOO_MANY, f"{candidate.gpus} GPUs, {most} are allowed"))
    else:
        made.kept.append(candidate)


class _Faults:
    """Separates values that are invalid by themselves from incompatible combinations.

    A value is invalid by itself if every candidate with it is invalid.
    """

    def __init__(self):
        self._good: set[str] = set()
        self._bad: dict[str, list[str]] = {}        # value -> faults of the first candidate that has it

    def add(self, candidate: Candidate, reasons: list[str]) -> None:
        """Record a candidate that is no valid experiment."""
        for value in _values(candidate):
            self._bad.setdefault(value, reasons)

    def pass_(self, candidate: Candidate) -> None:
        """Record a valid candidate."""
        self._good.update(_values(candidate))

    def check(self, file: str, count: int) -> None:
        """Refuse the values that are invalid by themselves.

        Raises
        ------
        InputErrors
            There are such values.
        """
        wrong = [fault for value, reasons in self._bad.items() if value not in self._good for fault in reasons]
        if wrong:
            raise InputErrors([f"{file}: of {count} candidates: {fault}" for fault in dict.fromkeys(wrong)])


def _values(candidate: Candidate) -> list[str]:
    """Return the assignments of a candidate, one text for each key and value, and its layout."""
    flat = {key: value for key, value in flattened(candidate.assignment).items() if key != "pools"}
    return [candidate.layout, *(canonical([key, value]) for key, value in flat.items())]


def _as_it_is(study: Study, point: Point) -> Iterator[Point]:
    yield dict(point)


def _aggregated(study: Study, point: Point) -> Iterator[Point]:
    """Yield aggregated replicas, as many as fit; axes of generated pools are left out."""
    own = {key: value for key, value in point.items() if not key.startswith(("pools.", "kv_transfer"))}
    most = study.settings.limits.gpus
    if most is not None and REPLICAS not in flattened(own):
        own[REPLICAS] = max(most // _gpus_of_one(study, own), 1)
    yield own


def _disaggregated(study: Study, point: Point) -> Iterator[Point]:
    """Yield pools for prefill and decode, one replica or more of each, as many as fit."""
    own = {key: value for key, value in point.items() if key.split(".")[0] != "pools"}
    of_pools = {key: value for key, value in point.items() if key.split(".")[0] == "pools"}
    if REPLICAS in flattened(own):              # of aggregated replicas
        own = {key: _without_replicas(key, value) for key, value in own.items() if key != REPLICAS}
    transfer = dict(study.of_points) if study.of_points else TRANSFER
    fixed = flattened(of_pools)
    most = study.settings.limits.gpus
    sizes = [_gpus_of_one(study, own | _topology_of(pool, fixed)) for pool in (PREFILL, DECODE)]
    for prefill in _counts(fixed, PREFILL, (most - sizes[1]) // sizes[0]):
        for decode in _counts(fixed, DECODE, (most - prefill * sizes[0]) // sizes[1]):
            pools = [{"name": name, "role": name, "replicas": count}
                     for name, count in (("prefill", prefill), ("decode", decode))]
            yield {"pools": pools} | transfer | own | of_pools


def _counts(fixed: Point, pool: str, most: int) -> range:
    """Return the allowed replica counts of a pool: as an axis says, else 1 to `most`, 1 at least."""
    given = fixed.get(f"{pool}.replicas")
    return range(1, max(most, 1) + 1) if not isinstance(given, int) else range(given, given + 1)


def _without_replicas(key: str, value: Any) -> Any:
    if key == "topology" and isinstance(value, dict):
        return {name: each for name, each in value.items() if name != "replicas"}
    return value


def _topology_of(pool: str, fixed: Point) -> Point:
    prefix = f"{pool}.topology."
    return {f"topology.{key.removeprefix(prefix)}": value for key, value in fixed.items() if key.startswith(prefix)}


def _gpus_of_one(study: Study, point: Point) -> int:
    """Return the GPUs of one replica under an assignment; 1 where its values are no valid topology."""
    flat, sizes = flattened(point), 1
    for key in ("tensor_parallel", "pipeline_parallel", "data_parallel", "prefill_context_parallel"):
        value = flat.get(f"topology.{key}", getattr(study.base.topology, key))
        sizes *= value if isinstance(value, int) and value > 0 else 1
    return sizes


def _with_users(study: Study, assignment: Point) -> Iterator[Point]:
    """Yield the assignment with each number of users, where the load is a concurrency."""
    if study.settings.load != CONCURRENCY:
        yield assignment
        return
    arrival = getattr(study.base.workload.parameters, "arrival", None)
    if hasattr(getattr(arrival, "parameters", None), "rate_per_s"):
        assignment = assignment | {"workload.arrival.rate_per_s": float("inf")}     # sent as slots fall free
    for users in study.settings.users:
        yield assignment | {"workload.load.mode": "concurrency", "workload.load.concurrency": users}


_LAYOUTS = {AGGREGATED: _aggregated, DISAGGREGATED: _disaggregated, AS_IT_IS: _as_it_is}
