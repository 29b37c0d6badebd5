"""Stages of load that follow each other: the number of requests of each, and the arrivals of stages with a rate."""
import math
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator.domain.load import PLACED, Stage
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import nearest
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.ramps import stepped_times_s
from simulator.workload.script import Group, Slots

MAX_REQUESTS = 2**31 - 1
BLOCK_SECONDS = 10**6


class StagePlan(NamedTuple):
    """One stage.

    count : requests that it may send.
    start_ns : int64 (count,), arrival of each request since the stage's beginning.
    """

    stage: Stage
    count: int
    start_ns: np.ndarray

    @property
    def lasts_ns(self) -> int:
        """The shortest duration of the stage.

        A stage with a rate lasts its duration, unless it ends with its last request before.
        """
        stage = self.stage
        is_timed = stage.rate_per_s is not None and stage.duration_s is not None
        if not is_timed or (self.count and (stage.process in PLACED or self.count == stage.num_requests)):
            return 0
        return self.ends_ns

    @property
    def ends_ns(self) -> int | None:
        """The stage's end since its beginning, whether or not requests come later."""
        return None if self.stage.duration_s is None else round(self.stage.duration_s * 1e9)


def plan_stages(stages: tuple[Stage, ...], generator_of, guess: int) -> list[StagePlan]:
    """Return the stages, with the arrivals of rates drawn.

    Parameters
    ----------
    generator_of : returns the random stream of a name.
    guess : requests for each slot of a stage that only its duration bounds.
    """
    return [plan_stage(stage, generator_of(f"stage {number}"), guess, f"workload.load.stages[{number}]")
            for number, stage in enumerate(stages)]


def notes_on_empty(plans: list[StagePlan]) -> tuple[str, ...]:
    """Return a note for each stage without requests.

    Raises
    ------
    InputErrors
        All stages are without requests.
    """
    empty = [number for number, plan in enumerate(plans) if not plan.count]
    if plans and len(empty) == len(plans):
        first = plans[0].stage
        raise InputErrors([KeyFault(
            f"workload.load.stages: no request comes in any of them, the first of {first.duration_s:g} s at "
            f"{first.rate_per_s:g} requests/s; raise one of the two")])
    return tuple(f"workload.load.stages[{number}]: no request comes in {plans[number].stage.duration_s:g} s at "
                 f"{plans[number].stage.rate_per_s:g} requests/s." for number in empty)


def plan_stage(stage: Stage, generator: np.random.Generator, guess: int, key: str) -> StagePlan:
    """Return one stage; see `plan_stages`. key : its name in messages."""
    if stage.concurrency is not None:
        count = stage.num_requests or guess * stage.concurrency
        return StagePlan(stage, count, np.zeros(count, np.int64))
    times_s = _times_s(stage, generator, key)
    return StagePlan(stage, len(times_s), nearest(times_s * 1e9))


def groups_of(plans: list[StagePlan]) -> tuple[Group, ...]:
    """Return the groups of the stages."""
    groups, first = [], 0
    for number, plan in enumerate(plans):
        before = plans[number - 1].stage if number else None
        groups.append(replace(
            group_of(plan, np.arange(first, first + plan.count)), after=number - 1,
            after_dispatch=before is not None and before.rate_per_s is not None and not before.drain))
        first += plan.count
    return tuple(groups)


def group_of(plan: StagePlan, plays: np.ndarray) -> Group:
    """Return the group of one stage, which begins at 0.

    plays : int64 (count,), plays of the stage.
    """
    stage = plan.stage
    slots = None
    if stage.concurrency is not None:
        slots = Slots(openings(stage.ramp_up_s, stage.concurrency))
    elif stage.max_in_flight:
        slots = Slots(np.zeros(min(stage.max_in_flight, plan.count), np.int64))
    return Group(plays, slots, ends_ns=None if stage.process in PLACED else plan.ends_ns,
                 interval_ns=round(stage.interval_s * 1e9), lasts_ns=plan.lasts_ns,
                 is_open_ended=stage.concurrency is not None and stage.num_requests is None)


def openings(ramp_up_s: float, count: int) -> np.ndarray:
    """Return when each of `count` slots opens, int64 ns."""
    return nearest(np.arange(count) * (ramp_up_s * 1e9 / count))


def _times_s(stage: Stage, generator, key: str) -> np.ndarray:
    """Return the arrivals of a stage with a rate."""
    rate, duration_s = stage.rate_per_s, stage.duration_s
    count = stage.num_requests
    if stage.process in PLACED and count is None:
        count = int(rate * duration_s)          # as inference-perf
    if (count or rate * duration_s) > MAX_REQUESTS or (count or 0) / rate > MAX_TIME_NS / 1e9:
        raise InputErrors([KeyFault(f"{key}: {count or rate * duration_s:.6g} requests at {rate:g}/s are too many")])
    if stage.process == "even_random":
        return even_random_s(generator, count, count / rate if duration_s is None else duration_s)
    if stage.process == "poisson_seconds":
        return poisson_seconds_s(generator, rate, count)
    return stepped_times_s(
        lambda first, number: _gaps(stage, generator, number), rate, stage.ramp_up_s, count,
        math.inf if duration_s is None else duration_s)


def even_random_s(generator, count: int, duration_s: float) -> np.ndarray:
    """Return arrivals after exponential gaps, stretched: the last is at the end."""
    times_s = np.cumsum(generator.standard_exponential(count))
    return times_s * (duration_s / times_s[-1]) if count else times_s


def poisson_seconds_s(generator, rate_per_s: float, count: int) -> np.ndarray:
    """Return `count` arrivals, a Poisson distributed number in each second.

    Within a second they are placed as in `even_random_s`.

    Source: kubernetes-sigs/inference-perf, inference_perf/loadgen/load_timer.py, PoissonLoadTimer; the number of
    arrivals: load_generator.py, run_stage.
    """
    times_s, first = [np.empty(0)], 0.0
    while (missing := count - sum(map(len, times_s))) > 0:
        numbers = generator.poisson(rate_per_s, int(min(missing / rate_per_s, BLOCK_SECONDS)) + 1)
        number_of = np.repeat(np.arange(len(numbers)), numbers)             # the second of each arrival
        sums = np.cumsum(generator.standard_exponential(len(number_of)))
        ends = np.append(0.0, sums)[np.cumsum(numbers)]
        begins = np.append(0.0, ends[:-1])
        times_s.append(first + number_of + (sums - begins[number_of]) / (ends - begins)[number_of])
        first += len(numbers)
    return np.concatenate(times_s)[:count]


def _gaps(stage: Stage, generator, count: int) -> np.ndarray:
    """Return gaps of mean 1."""
    if stage.process == "constant":
        return np.ones(count)
    if stage.process == "poisson":
        return generator.standard_exponential(count)
    shape = stage.cv ** -2
    return generator.standard_gamma(shape, count) / shape
