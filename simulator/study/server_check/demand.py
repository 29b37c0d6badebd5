"""The demand in a server's series: arrivals between two readings."""
from typing import NamedTuple

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.study.server_check.series import ServerSeries

WARM_S = 60.0                   # of demand before the first reading, where the server was not idle then


class Demand(NamedTuple):
    """Arrivals between readings.

    edges_s : float (n + 1,), times of readings after the first one. counts : int64 (n,), arrivals between them.
    lead_s : length of the demand that is added before the first reading; 0: the server was idle.
    """

    edges_s: np.ndarray
    counts: np.ndarray
    lead_s: float

    @property
    def rate_per_s(self) -> float:
        """Mean rate of arrivals."""
        return float(self.counts.sum() / self.edges_s[-1])

    def times_s(self, seed: int) -> np.ndarray:
        """Draw the time of each arrival within its window, from the start of the lead on."""
        rng = RandomStreams(seed).generator("server_check/arrivals")
        before = rng.random(rng.poisson(self.rate_per_s * self.lead_s)) * self.lead_s
        begins, widths = np.repeat(self.edges_s[:-1], self.counts), np.repeat(np.diff(self.edges_s), self.counts)
        within = self.lead_s + begins + widths * rng.random(len(begins))
        return np.sort(np.concatenate([before, within]))


def demand_of(series: ServerSeries, mean_prompt_tokens: float) -> Demand | None:
    """Return the arrivals that a series shows; None: it does not show them.

    Arrivals of a window are ends and the growth of requests that run or wait, or, without ends, prompt tokens by their
    mean.

    mean_prompt_tokens : of the experiment.
    """
    inside = series.column("running") + np.nan_to_num(series.column("waiting"))
    if "ended" in series.values:
        level = series.column("ended") + inside
    elif "prompt_tokens" in series.values:
        level = series.column("prompt_tokens") / mean_prompt_tokens
    else:
        return None
    known = np.flatnonzero(~np.isnan(level))
    if len(known) < 2:
        return None
    edges_s = series.times_s[known] - series.times_s[0]
    highest = np.maximum.accumulate(np.round(level[known] - level[known[0]]))
    first = inside[~np.isnan(inside)]
    return Demand(np.concatenate([[0.0], edges_s[1:]]), np.diff(highest).astype(np.int64),
                  WARM_S if len(first) and first[0] > 0 else 0.0)
