"""The confidence interval of a capacity, from the capacity by each seed."""
import math
from collections.abc import Sequence

import numpy as np

from simulator.study.capacity.search import Span
from simulator.study.capacity.verdict import Verdict
from simulator.study.statistics.intervals import of_replications


def interval_of(good: Verdict, bad: Verdict, span: Span, confidence: float = 0.95,
                verdicts: Sequence[Verdict] = ()) -> tuple[float, float] | None:
    """Return the interval of the value at which the least margin is 0.

    The margin of a seed is a line through its margins at both ends; all seeds have one slope, that of the means, since
    between ends 1 % apart the noise of one seed may be steeper than the margin. With equal slopes this is the linear
    interpolation of each seed; t interval over the seeds. Beyond the nearest values of which runs decided, that they
    pass on the one side and fail on the other, and beyond all that were tested, it does not go: there lines would be
    extrapolated.

    Parameters
    ----------
    good, bad : ends of the last bracket. verdicts : on all values that were tested; empty: any.

    Returns
    -------
    tuple
        None: values did not decide (a backlog that grows), or one seed alone was run.
    """
    capacities = by_seed(good, bad, span)
    if capacities is None:
        return None
    estimate = of_replications(list(capacities.values()), confidence)
    least, most = _tested(verdicts, good, bad) if verdicts else (span.low, span.high)
    low, high = (min(max(end, least), most) for end in (estimate.low, estimate.high))
    return low, high


def _tested(verdicts: Sequence[Verdict], good: Verdict, bad: Verdict) -> tuple[float, float]:
    """Return the nearest values on both sides of a bracket of which runs decided; else the outermost tested."""
    sides = []
    for end, other in ((good, bad), (bad, good)):
        sign = 1 if end.value < other.value else -1                  # inward of the bracket
        beyond = [each for each in verdicts if sign * each.value <= sign * end.value]
        decided = [each for each in beyond
                   if each.passes == end.passes and not (each.is_undecided or each.is_thin)]
        sides.append(max(sign * each.value for each in decided) * sign if decided
                     else min(sign * each.value for each in beyond) * sign)
    return min(sides), max(sides)


def by_seed(good: Verdict, bad: Verdict, span: Span) -> dict[int, float] | None:
    """Return the capacity by each seed; None as in `interval_of`."""
    seeds = sorted(good.by_seed.keys() & bad.by_seed.keys())
    if len(seeds) < 2 or math.isnan(good.margin) or math.isnan(bad.margin):
        return None
    room = np.array([[good.by_seed[seed], bad.by_seed[seed]] for seed in seeds])
    slope = float(room[:, 0].mean() - room[:, 1].mean()) / (bad.value - good.value)
    if slope == 0 or (slope < 0) != span.is_least:          # the noise hides the slope
        return None
    middle = (good.value + bad.value) / 2
    return dict(zip(seeds, (middle + room.mean(axis=1) / slope).tolist(), strict=True))
