"""[study] of kind "tune": objectives, bounds, candidate deployments, and the search over them."""
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, field
from msgspec.structs import replace

from simulator.config.experiment import Count, Section
from simulator.config.words import show
from simulator.domain.load import Measure, Warmup
from simulator.errors import InputErrors
from simulator.study.capacity.bounds import BACKLOG, Bounds, Slo, read_bounds
from simulator.study.capacity.varied import RATE
from simulator.study.sweep.design import flattened
from simulator.study.sweep.needs import missing_of
from simulator.study.sweep.partly import faults_of_checks
from simulator.study.sweep.study_file import Share, Statistics, Study, StudyTable
from simulator.study.tuning.objectives import BY_CONCURRENCY, Objective, objectives_in
from simulator.study.tuning.sampling_rules import AUTO, OPTUNA, faults_of_sampling

AGGREGATED, DISAGGREGATED, AS_IT_IS = "aggregated", "disaggregated", "pools"
CAPACITY, OFFERED, CONCURRENCY = "capacity", "offered", "concurrency"
EXHAUSTIVE, HALVING = "exhaustive", "halving"
NO_BOUNDS = Bounds((), wants_stable=False)


class Limits(Section, kw_only=True):
    """Limits of a deployment, [study.limits]."""

    gpus: Annotated[Count | None, Meta(description=(
        "GPUs of a deployment, at most; as many replicas as fit, unless an axis sets their number"))] = None


class TuneTable(StudyTable, kw_only=True):
    """Search for the best deployment, [study] with kind = "tune"."""

    objectives: Annotated[dict[str, Any], Meta(description=(
        "\"max\" or \"min\" of each objective: a key of summary.json, one per GPU (output_throughput_per_gpu), "
        "tokens_per_s_per_user, ..._gap_mean, ..._by_concurrency, gpus, cost_per_hour or rate"))]
    slo: Annotated[Slo, Meta(description=(
        "bounds to hold: keys of summary.json, goodput_share, backlog; required with load = \"capacity\""))] = field(
            default_factory=dict)
    search: Annotated[Literal["exhaustive", "halving", "optuna", "auto"], Meta(description=(
        "exhaustive: all candidates; halving: all with few requests, the best third with three times as many; optuna: "
        "chosen by a sampler; auto: the first of the three that 2,000 and max_trials candidates allow"))] = AUTO
    max_trials: Annotated[int, Meta(ge=1, le=10**6, description="candidates that are simulated, at most")] = 10_000
    first_requests: Annotated[Annotated[int, Meta(ge=1, le=2**31 - 1)] | None, Meta(description=(
        "requests of the first round of halving; default: a 27th of the experiment's, 100 at least"))] = None
    layouts: Annotated[tuple[Literal["aggregated", "disaggregated"], ...] | None, Meta(min_length=1, description=(
        "aggregated: replicas that prefill and decode; disaggregated: a pool for each, with 1 and more replicas; "
        "default: aggregated, or the [[pools]] of the experiment; of a listed point with replicas or pools: its own"
    ))] = None
    load: Annotated[Literal["capacity", "offered", "concurrency"], Meta(description=(
        "capacity: each candidate at its own largest rate that keeps slo; offered: the experiment's; concurrency: users"
    ))] = OFFERED
    sampler: Annotated[Literal["tpe", "cmaes", "nsga2"] | None, Meta(description=(
        "with search = \"optuna\": tpe: trees of Parzen estimators; cmaes: CMA-ES over numbers alone, by the package "
        "cmaes; nsga2: a genetic search; default: tpe for one objective, nsga2 for several"))] = None
    at_once: Annotated[int, Meta(ge=1, le=10**4, description=(
        "candidates that the sampler chooses before it has the results of any of the batch"))] = 16
    patience: Annotated[Annotated[int, Meta(ge=1, le=10**6)] | None, Meta(description=(
        "the sampler's search ends after as many candidates in a row without a better one; absent: max_trials alone"
    ))] = None
    racing: Annotated[bool, Meta(description=(
        "a candidate of the sampler runs seed by seed, and is dropped once its differences from the best on the same "
        "seeds leave no doubt that it is worse"))] = False
    held_out: Annotated[int, Meta(ge=0, le=10**4, description=(
        "seeds after those of the search on which the best candidate is compared with the experiment as it is, in "
        "pairs; 0: it is not"))] = 0
    users: Annotated[tuple[Count, ...], Meta(description=(
        "users of a closed loop, with load = \"concurrency\": each sends a request when its last one ended"))] = ()
    rel_tol: Annotated[Share, Meta(description="of the largest rate, relative, with load = \"capacity\"")] = 0.01
    min_seeds: Annotated[int, Meta(ge=1, le=10**4, description="runs of each rate, to begin with")] = 3
    max_seeds: Annotated[int, Meta(ge=1, le=10**4, description="runs of a rate, at most")] = 32
    limits: Annotated[Limits, Meta(description="limits of a deployment")]
    epsilon: Annotated[Literal["ci", "none"], Meta(description=(
        "ci: values within half of an interval of each other are equal, so that noise makes no winners"))] = "ci"
    winners: Annotated[int, Meta(ge=1, le=10**4, description="experiments that are written, the best first")] = 10

    @staticmethod
    def takes_ranges(settings: Any) -> bool:
        """See StudyTable: Optuna's samplers do, which auto chooses for such a range."""
        return settings.search in (OPTUNA, AUTO)

    @staticmethod
    def checks(study: Study) -> tuple[Callable[[], Iterable[str]], ...]:
        """Check objectives, bounds, and combinations of keys."""
        return checks_of(study)

    @staticmethod
    def keys_of_points(experiment: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, ...]:
        """Set [kv_transfer] apart: generated pools need it, other layouts refuse it."""
        layouts = given.get("layouts")
        is_generated = isinstance(layouts, list) and DISAGGREGATED in layouts and not experiment.get("pools")
        return ("kv_transfer",) if is_generated else ()


class Question(NamedTuple):
    """A tuning study, checked.

    study : its statistics cover objectives and bounds.
    """

    study: Study
    objectives: tuple[Objective, ...]
    bounds: Bounds

    @property
    def settings(self) -> TuneTable:
        """The table [study]."""
        return self.study.settings


def check(study: Study) -> Question:
    """Return the checked study.

    Raises
    ------
    InputErrors
        All faults in the combination of the keys of [study].
    """
    if faults := list(faults_of_checks(checks_of(study))):
        raise InputErrors(faults)
    given, objectives, bounds = study.settings, objectives_in(study.settings.objectives, "")[0], _bounds(study)
    if given.load == CONCURRENCY:               # a closed loop has no backlog
        bounds = bounds._replace(wants_stable=False)
    keys = [*(each.metric for each in objectives), *bounds.metrics]
    statistics = replace(given.statistics, metrics=tuple(dict.fromkeys(keys)), warmup=_warmup(study))
    return Question(study._replace(settings=replace(given, statistics=statistics)), objectives, bounds)


def checks_of(study: Study) -> tuple[Callable[[], Iterable[str]], ...]:
    """Return checks of objectives, of bounds, and of combinations of keys."""
    each = (_faults_of_objectives, _faults_of_bounds, _faults_of_statistics, _faults_of_seeds,
            _faults_of_load, _faults_of_users, _faults_of_layouts, _faults_of_search, faults_of_sampling)
    return tuple(partial(check, study, f"{study.file}: study") for check in each)


def _bounds(study: Study) -> Bounds:
    return read_bounds(study.settings.slo, f"{study.file}: study.slo") if study.settings.slo else NO_BOUNDS


def _warmup(study: Study):
    """Return the warm-up that is cut: none where the experiment itself says which requests count."""
    given = study.settings.statistics.warmup
    return "none" if given is None and _measures(study) else given


def _measures(study: Study) -> bool:
    return study.base.workload.measure != Measure() or study.base.workload.warmup != Warmup()


def _faults_of_statistics(study: Study, place: str):
    given, idle = study.settings, Statistics()
    if given.run.baseline is not None:
        yield f"{place}.run.baseline: expected none: no candidate is paired with another"
    if given.statistics.precision:
        yield f"{place}.statistics.precision: expected 0: halving and the search for a rate say how long runs are"
    if given.statistics.metrics != idle.metrics:
        yield f"{place}.statistics.metrics: expected none: they are those of objectives and slo"
    if given.statistics.warmup not in (None, "none") and _measures(study):
        yield (f"{place}.statistics.warmup: expected none beside [workload.measure] or [workload.warmup], which say "
               "what counts")


def _faults_of_seeds(study: Study, place: str):
    given = study.settings
    if given.load != CAPACITY:
        if (given.rel_tol, given.min_seeds, given.max_seeds) != (0.01, 3, 32):
            yield f'{place}: rel_tol, min_seeds and max_seeds are of load = "capacity"'
        return
    if given.seeds != 1:
        yield f'{place}.seeds: expected none with load = "capacity": min_seeds and max_seeds say how many'
    if given.min_seeds > given.max_seeds:
        yield f"{place}.min_seeds: expected at most max_seeds = {given.max_seeds}, found {given.min_seeds}"


def _faults_of_load(study: Study, place: str):
    given, keys = study.settings, {axis.key for axis in study.axes}
    if given.load == CAPACITY:
        if not given.slo:
            yield f'{place}.slo: missing; load = "capacity" is the largest rate that keeps it'
        if not hasattr(study.base.workload.parameters, "arrival") and study.base.workload.type != "trace":
            yield f'{place}.load: "capacity" varies workload.arrival.rate_per_s, which this workload has not'
        for key in sorted(keys & {"workload.arrival.rate_per_s", "workload.time_scale"}):
            yield f'{place}.axes: {show(key)} is what load = "capacity" varies'


def _faults_of_users(study: Study, place: str):
    given = study.settings
    if (given.load == CONCURRENCY) != bool(given.users):
        yield f'{place}.users: expected how many with load = "concurrency", and none with another load'
    if given.load == CONCURRENCY and (given.slo or {}).get(BACKLOG) is not None:
        yield f'{place}.slo.{BACKLOG}: expected none with load = "concurrency": a closed loop has no backlog'
    keys = {axis.key for axis in study.axes}
    for key in sorted(keys & {"workload.load.mode", "workload.load.concurrency"} if given.users else ()):
        yield f"{place}.axes: {show(key)} is what users says"


def _faults_of_layouts(study: Study, place: str):
    given, has_pools = study.settings, bool(study.base.pools)
    if has_pools and given.layouts is not None:
        yield f"{place}.layouts: expected none: the experiment has [[pools]] of its own"
    if has_pools or DISAGGREGATED not in (given.layouts or ()):
        return
    if given.limits.gpus is None:
        yield f'{place}.limits.gpus: missing; "{DISAGGREGATED}" takes as many replicas as fit'
    if any(axis.key == "topology.replicas" for axis in study.axes) and given.layouts == (DISAGGREGATED,):
        yield (f'{place}.axes."topology.replicas": expected none with "{DISAGGREGATED}" alone; "pools.0.replicas" is '
               'prefill, "pools.1.replicas" decode')


def _faults_of_search(study: Study, place: str):
    given = study.settings
    if given.first_requests is not None and given.search not in (HALVING, AUTO):
        yield f'{place}.first_requests: expected none with search = "{given.search}"'
    if given.search == HALVING and num_requests_of(study) is None:
        yield f"{place}.search: halving takes a workload that is drawn, with num_requests; a trace is as long as it is"


def _faults_of_bounds(study: Study, place: str):
    return missing_of(study, (each.key for each in _bounds(study).bounds), f"{place}.slo")


def _faults_of_objectives(study: Study, place: str):
    given = study.settings
    objectives, faults = objectives_in(given.objectives, f"{place}.objectives")
    yield from faults
    yield from missing_of(study, (each.key for each in objectives), f"{place}.objectives")
    for each in objectives:
        if each.key == "rate" and given.load != CAPACITY and RATE not in assigned_keys(study):
            yield (f'{place}.objectives.rate: goes with load = "capacity", or with points that set {RATE}; other loads '
                   "are as they are offered")
        closed = given.load == CONCURRENCY or study.base.workload.load.concurrency
        if each.key == BY_CONCURRENCY and not closed:
            yield (f'{place}.objectives.{BY_CONCURRENCY}: takes a number of users: load = "concurrency", or '
                   "workload.load.concurrency")


def assigned_keys(study: Study) -> set[str]:
    """Return the keys that axes and listed points assign."""
    points = study.settings.points if isinstance(study.settings.points, tuple) else ()
    return {axis.key for axis in study.axes} | {key for point in points for key in flattened(point)}


def num_requests_of(study: Study) -> int | None:
    """Return the requests of a drawn workload; None: no such number, or a trace."""
    return getattr(study.base.workload.parameters, "num_requests", None) if study.is_drawn else None
