"""Loads that follow each other: how many requests each stage has, and when those of a rate come."""
from typing import NamedTuple

import numpy as np

from simulator.domain.load import Stage
from simulator.errors import InputErrors, KeyFault
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.script import Group, Slots

MAX_REQUESTS = 2**31 - 1


class StagePlan(NamedTuple):
    """One stage.

    count : requests that it may send.
    start_ns : int64 (count,), when each comes, since the stage's beginning.
    """

    stage: Stage
    count: int
    start_ns: np.ndarray


def plan_stages(stages: tuple[Stage, ...], generator_of, guess: int) -> list[StagePlan]:
    """Return the stages, with the arrivals of rates drawn.

    Parameters
    ----------
    generator_of : returns the random stream of a name.
    guess : requests for each slot of a stage that only its duration bounds.
    """
    plans = []
    for number, stage in enumerate(stages):
        if stage.concurrency is not None:
            count = stage.num_requests or guess * stage.concurrency
            plans.append(StagePlan(stage, count, np.zeros(count, np.int64)))
            continue
        times_s = _times_s(stage, generator_of(f"stage {number}"))
        if not len(times_s):
            raise InputErrors([KeyFault(
                f"workload.load.stages[{number}]: nobody comes in {stage.duration_s:g} s at {stage.rate_per_s:g} "
                "requests/s")])
        plans.append(StagePlan(stage, len(times_s), np.rint(times_s * 1e9).astype(np.int64)))
    return plans


def groups_of(plans: list[StagePlan]) -> tuple[Group, ...]:
    """Return the groups of the stages."""
    groups, first = [], 0
    for number, (stage, count, _) in enumerate(plans):
        groups.append(Group(
            np.arange(first, first + count),
            None if stage.concurrency is None else Slots(np.zeros(stage.concurrency, np.int64)),
            ends_ns=None if stage.duration_s is None else round(stage.duration_s * 1e9),
            after=number - 1, after_dispatch=number > 0 and plans[number - 1].stage.rate_per_s is not None,
            interval_ns=round(stage.interval_s * 1e9),
            is_open_ended=stage.concurrency is not None and stage.num_requests is None))
        first += count
    return tuple(groups)


def _times_s(stage: Stage, generator) -> np.ndarray:
    """Return the arrivals of a stage with a rate; as inference-perf, int(rate * duration) of them for even_random."""
    rate, duration_s = stage.rate_per_s, stage.duration_s
    if stage.process == "even_random":
        count = stage.num_requests or int(rate * duration_s)
        times_s = np.cumsum(generator.standard_exponential(count))
        end_s = count / rate if duration_s is None else duration_s
        return times_s * (end_s / times_s[-1]) if count else times_s
    count = stage.num_requests
    if count is None:           # so many that the last one surely comes after the end, or the next block is drawn
        count = int(1.1 * rate * duration_s + 100)
    if count > MAX_REQUESTS or count / rate > MAX_TIME_NS / 1e9:
        raise InputErrors([KeyFault(f"workload.load.stages: {count} requests at {rate:g}/s are too many")])
    times_s = np.cumsum(_gaps(stage, generator, count)) / rate
    while stage.num_requests is None and times_s[-1] < duration_s:
        times_s = np.append(times_s, times_s[-1] + np.cumsum(_gaps(stage, generator, 100)) / rate)
    return times_s if duration_s is None else times_s[times_s < duration_s]


def _gaps(stage: Stage, generator, count: int) -> np.ndarray:
    """Return gaps of mean 1."""
    if stage.process == "constant":
        return np.ones(count)
    if stage.process == "poisson":
        return generator.standard_exponential(count)
    shape = stage.cv ** -2
    return generator.standard_gamma(shape, count) / shape
