"""How sure a capacity is: what each seed says of it."""
import math

import numpy as np

from simulator.study.capacity.search import Span
from simulator.study.capacity.verdict import Verdict
from simulator.study.statistics.intervals import of_replications


def interval_of(good: Verdict, bad: Verdict, span: Span, confidence: float = 0.95) -> tuple[float, float] | None:
    """Return the interval of the value at which the least margin is 0.

    The margin of a seed is a line through its margins at both ends; all seeds have one slope, that of the means, since
    between ends 1 % apart the noise of one seed may be steeper than the margin. With equal slopes this is the linear
    interpolation of each seed; t interval over the seeds.

    Parameters
    ----------
    good, bad : ends of the last bracket.

    Returns
    -------
    tuple
        None: values did not decide (a backlog that grows), or one seed alone was run.
    """
    capacities = by_seed(good, bad, span)
    if capacities is None:
        return None
    estimate = of_replications(list(capacities.values()), confidence)
    low, high = (min(max(end, span.low), span.high) for end in (estimate.low, estimate.high))
    return low, high


def by_seed(good: Verdict, bad: Verdict, span: Span) -> dict[int, float] | None:
    """Return what each seed says the capacity is, likewise."""
    seeds = sorted(good.by_seed.keys() & bad.by_seed.keys())
    if len(seeds) < 2 or math.isnan(good.margin) or math.isnan(bad.margin):
        return None
    room = np.array([[good.by_seed[seed], bad.by_seed[seed]] for seed in seeds])
    slope = float(room[:, 0].mean() - room[:, 1].mean()) / (bad.value - good.value)
    if slope == 0 or (slope < 0) != span.is_least:          # the noise hides how it falls
        return None
    middle = (good.value + bad.value) / 2
    return dict(zip(seeds, (middle + room.mean(axis=1) / slope).tolist(), strict=True))
