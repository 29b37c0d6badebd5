"""Percentiles of too few requests: usable lower ones, and the number of requests that would be enough."""
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from simulator.results.verdicts import LEAST_REQUESTS
from simulator.study.capacity.bounds import ANY, BACKLOG, Bounds
from simulator.study.capacity.verdict import Verdict
from simulator.study.statistics.of_run import MSER_5
from simulator.study.telling.screen import figure

MOST_CUT = 2                    # times the requests that percentiles need: MSER-5 cuts half of all at most
TINY = 1e-6                     # rounding errors of floats
SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


class Thin(NamedTuple):
    """The reason why values could not be judged.

    metrics : percentiles of too few requests, and BACKLOG. low, high : least and greatest value that could not be
    judged. is_all : all values are thin. requests : of a run, the most. needed : number that would be enough.
    min_tail : of [study.statistics]. most : largest number of requests that it allows; None: the workload's own.
    is_cut : the horizon ended runs before their requests.
    """

    metrics: tuple[str, ...]
    low: float
    high: float
    is_all: bool
    requests: int
    needed: int
    min_tail: float
    most: int | None
    is_cut: bool = False

    @property
    def content(self) -> dict[str, Any]:
        """The reason as capacity.json has it."""
        return {"metrics": list(self.metrics), "from": self.low, "to": self.high, "requests": self.requests,
                "requests_needed": self.needed, "min_tail": self.min_tail, "max_requests": self.most}

    @property
    def sentence(self) -> str:
        """A sentence with the ways out."""
        own = [metric for metric in self.metrics if metric != BACKLOG]
        asked = []
        if own:
            asked.append(f"{', '.join(own)}: study.statistics.min_tail = {self.min_tail:g} asks for so many requests "
                         "beyond a percentile")
        if BACKLOG in self.metrics:
            asked.append(f"{BACKLOG}: fewer than {LEAST_REQUESTS} requests do not show whether a queue grows")
        shortage = f"{'; '.join(asked)}; {self.needed:,} requests would do, a run has {self.requests:,}"
        ways = [self._way()]
        ways += [f"{metric.rpartition('.')[0]}.{known} can be told of {self.requests:,}" for metric in own
                 if (known := self._known(metric))]
        if own and (tail := self._tail()) >= 1:
            ways.append(f"with min_tail = {tail:g} it is told, less surely")
        if BACKLOG in self.metrics:
            ways.append(f'study.slo.{BACKLOG} = "{ANY}" does without')
        return f"{shortage} ({'; '.join(ways)})"

    def _way(self) -> str:
        """Return the way to more requests, as text."""
        if self.is_cut:
            return "a longer horizon_s has them: it cuts the runs"
        if self.needed > (self.most or math.inf):
            return f"study.statistics.max_requests = {self.most:,} allows no more"
        return "a longer workload has them"

    def _tail(self) -> int:
        """Return the least whole number of requests beyond any of the percentiles."""
        return math.floor(min(self.requests * self.min_tail / self.needed, self.min_tail))

    def _known(self, metric: str) -> str | None:
        """Return the highest percentile below a thin one that has enough requests; None: there is none."""
        own = SHARES.get(metric.rpartition(".")[2], 0.0)
        measured = self.requests * self.min_tail / (1 - own) / self.needed
        return max((name for name, share in SHARES.items()
                    if share < own and measured * (1 - share) + TINY >= self.min_tail), default=None)


def thin_of(verdicts: Sequence[Verdict], min_tail: float, warmup: Any, most: int | None) -> Thin | None:
    """Return why values could not be judged; None: all were judged.

    Parameters
    ----------
    min_tail, warmup : of the study's statistics. most : largest allowed number of requests of a run; None: no limit.
    """
    thin = [each for each in verdicts if each.is_thin]
    if not thin:
        return None
    metrics = tuple(dict.fromkeys(metric for each in thin for metric in each.thin))
    least = min(thin, key=lambda each: each.num_measured)
    needed = requests_for(metrics, min_tail, warmup)
    if least.num_measured and (needed > LEAST_REQUESTS or least.num_requests >= LEAST_REQUESTS):
        # a share of the requests counts, and so with more requests
        needed = max(needed, math.ceil(least.num_requests / least.num_measured * requests_for(metrics, min_tail)))
    values = [each.value for each in thin]
    return Thin(metrics, min(values), max(values), len(thin) == len(verdicts),
                max(each.num_requests for each in thin), needed, min_tail, most, any(each.is_cut for each in thin))


def thin_values(thin: Thin) -> str:
    """Return the range of values that could not be judged."""
    return figure(thin.low) if thin.low == thin.high else f"{figure(thin.low)} to {figure(thin.high)}"


def metrics_of(bounds: Bounds) -> tuple[str, ...]:
    """Return the metrics of bounds that need a number of requests."""
    return (*bounds.metrics, BACKLOG) if bounds.wants_stable else bounds.metrics


def requests_for(metrics: Sequence[str], min_tail: float, warmup: Any = None) -> int:
    """Return how many requests percentiles need, and BACKLOG.

    Parameters
    ----------
    warmup : that is cut from the requests, as a study has it; None: none.
    """
    need = max((min_tail / (1 - SHARES[statistic]) for metric in metrics
                if (statistic := metric.rpartition(".")[2]) in SHARES), default=0.0)
    need = MOST_CUT * need if warmup == MSER_5 else need
    need += warmup.get("requests", 0) if isinstance(warmup, dict) else 0
    return max(math.ceil(need - TINY), LEAST_REQUESTS if BACKLOG in metrics else 0)


def is_missed_for_sure(metric: str, limit: float, summary: dict[str, float | None], min_tail: float) -> bool:
    """Return whether a percentile of too few requests is above a limit for sure.

    It is if a lower percentile with enough requests is above it.
    """
    name, _, statistic = metric.rpartition(".")
    count = summary.get("requests.completed") or 0
    return any(share < SHARES.get(statistic, 0.0) and count * (1 - share) + TINY >= min_tail
               and (summary.get(f"{name}.{lower}") or 0.0) > limit for lower, share in SHARES.items())
