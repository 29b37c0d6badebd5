"""Numbers that a run has only where its experiment has bounds, prices or power.

A study that uses such a number without its table is refused before any run; an axis may provide the table.
"""
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from simulator.config.experiment import Experiment
from simulator.errors import InputErrors
from simulator.study.sweep.design import flattened
from simulator.study.sweep.study_file import Study

PER_GPU = "_per_gpu"


class Need(NamedTuple):
    """The requirement of some numbers.

    tables : first keys of summary.json. names : last keys. has : whether an experiment has it. axes : beginnings or
    ends of keys that provide it. missing : a sentence where it is missing.
    """

    tables: frozenset[str]
    names: frozenset[str]
    has: Callable[[Experiment], Any]
    axes: tuple[str, ...]
    missing: str


def _has_slo(experiment: Experiment) -> bool:
    given = experiment.slo
    return any(getattr(given, key) is not None for key in ("ttft_ms", "tpot_ms", "e2el_ms")) or bool(given.classes)


def has_price(experiment: Experiment) -> bool:
    """Return whether a replica has a price."""
    return any(pool.cost_per_hour for pool in (*experiment.all_pools(), *experiment.encode_pools()))


def _is_uncertain(experiment: Experiment) -> bool:
    return any(pool.latency.uncertainty for pool in experiment.all_pools())


def _need(tables: str, names: str, has: Callable[[Experiment], Any], axes: str, missing: str) -> Need:
    return Need(frozenset(tables.split()), frozenset(names.split()), has, tuple(axes.split()), missing)


NEEDS = (
    _need("", "goodput_share request_goodput slo_attainment cost_per_good_request", _has_slo, "slo",
          "the experiment has no [slo], which says which requests are good"),
    _need("cost cost_by_node", "cost cost_per_hour", has_price, "prices cost_per_hour",
          "the experiment has no [prices] of its accelerators, and no [[pools]] with cost_per_hour"),
    _need("", "carbon_g", lambda experiment: experiment.carbon, "carbon",
          "the experiment has no [carbon], which says what a kilowatt-hour emits"),
    _need("", "electricity_cost", lambda experiment: experiment.electricity, "electricity",
          "the experiment has no [electricity], which says what a kilowatt-hour costs"),
    _need("energy", "", lambda experiment: experiment.power, "power",
          "the experiment has no [power], which says what its accelerators draw"),
    _need("fitness", "", lambda experiment: experiment.fitness, "fitness",
          "the experiment has no [fitness], whose weights make one number"),
    _need("uncertainty", "", _is_uncertain, "uncertainty",
          "the experiment has no latency.uncertainty, which asks for intervals"),
)


def missing(study: Study, key: str) -> str | None:
    """Return why the runs of a study have no such number; None: they may have it.

    key : of summary.json, or derived by a study: goodput_share, cost_per_hour, ..._per_gpu.
    """
    parts = key.removesuffix(PER_GPU).split(".")
    for need in NEEDS:
        if (len(parts) > 1 and parts[0] in need.tables) or parts[-1] in need.names:
            is_varied = any(part in need.axes for assigned in _assigned(study) for part in assigned.split("."))
            if not is_varied and not need.has(study.base):
                return need.missing
    return None


def check_metrics(study: Study) -> None:
    """Refuse metrics of a sweep if the experiment lacks their table.

    A study that was run before can still be read.

    Raises
    ------
    InputErrors
        All such metrics.
    """
    metrics = study.settings.statistics.metrics
    if faults := list(missing_of(study, metrics, f"{study.file}: study.statistics.metrics")):
        raise InputErrors(faults)


def missing_of(study: Study, keys: Iterable[str], place: str) -> Iterator[str]:
    """Yield a fault for each key without a number in the runs of a study.

    place : prefix of the key in a message.
    """
    for key in dict.fromkeys(keys):
        if why := missing(study, key):
            yield f"{place}.{key}: {why}"


def _assigned(study: Study) -> Iterator[str]:
    """Yield the keys that points of a study assign."""
    for axis in study.axes:
        for value in axis.values or (axis.at(0.0),):
            yield from flattened({axis.key: value})
    for point in study.settings.points if isinstance(study.settings.points, tuple) else ():
        yield from flattened(point)
