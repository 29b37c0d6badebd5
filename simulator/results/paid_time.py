"""Time that replicas are paid for, and its cost at prices that may differ by hour of the day."""
import math
from typing import NamedTuple

import numpy as np

from simulator.domain.costs import HOURS
from simulator.domain.run import Run
from simulator.results.power_meter import time_by_hour
from simulator.results.uptime import PAID, stays

NS_PER_HOUR = 3.6e12


class Rate(NamedTuple):
    """The cost of a place.

    per_hour : mean over the day. by_hour : in each hour of the day, first in that of simulated time 0; None: per_hour
        in all hours.
    """

    per_hour: float
    by_hour: tuple[float, ...] | None = None


class PaidTime:
    """Time of each replica from wanted to off.

    Within the window where one is measured. is_by_hour : whether a rate has prices by hour, so that the time in each
    hour of the day is kept.
    """

    def __init__(self, run: Run, is_by_hour: bool):
        replica, begin_ns, end_ns = stays(run, PAID)
        self.by_hour_ns = np.zeros((len(run.replicas), HOURS if is_by_hour else 1), np.int64)
        np.add.at(self.by_hour_ns, replica, time_by_hour(begin_ns, end_ns, 0 if is_by_hour else None))

    def cost(self, places: slice, rate: Rate) -> float:
        """Return the cost of places that have one rate."""
        paid_ns = self.by_hour_ns[places].sum(axis=0).tolist()
        if rate.by_hour is None:
            return rate.per_hour * sum(paid_ns) / NS_PER_HOUR
        return math.fsum(price * ns for price, ns in zip(rate.by_hour, paid_ns, strict=True)) / NS_PER_HOUR
