"""Statistics of one finished run: end of its warm-up, intervals of its metrics, trend of its queue.

`Look` is given to a run (`api.Order.settle`); it chooses the measured requests, and keeps its results.
"""
from collections.abc import Collection
from typing import Any

import numpy as np
from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.cut import cut_notes
from simulator.results.measured import narrowed
from simulator.results.uptime import PAID, measured_ns, time_in_ns
from simulator.study.statistics.order_statistics import MIN_TAIL, is_thin, ranks_of
from simulator.study.statistics.trend import backlog
from simulator.study.statistics.warm_up import batch_means, mser_5

MSER_5, NONE = "mser5", "none"
SPANS = {                       # metrics with one value for each request: start and end
    "ttft_ms": ("arrival_ns", "first_token_ns"),
    "tpot_ms": ("first_token_ns", "completed_ns"),
    "e2el_ms": ("arrival_ns", "completed_ns"),
    "queue_ms": ("arrival_ns", "scheduled_ns"),
}
SERIES = tuple(SPANS)
NS_PER_MS = 1e6


class Look:
    """The statistics of a run; its `extra` holds the results of the last run.

    extra : {warmup_requests, warmup_found: requests cut at the beginning, and whether the run settles before its
        middle; backlog: "stable", "growing", "too short to tell"; interval: {metric: half-width within this run, None:
        none}; correlated: metrics with dependent batches; thin: percentiles with too few observations
        beyond; too_short: the run settles too late, or batches depend on each other; speed_gap_mean: the mean over all
        gaps between tokens of 1 / gap, tokens a second, None: there is no gap, or one of 0; is_cut: true where the
        horizon left requests, else absent}.
    paid_share : float64 (replicas,), ranks counted each: the share of the last run's time that it was paid for.

    Parameters
    ----------
    warmup : "mser5", "none", {"requests": 500} or {"seconds": 30.0}.
    metrics : requested keys of summary.json, "ttft_ms.p99".
    confidence : of the intervals.
    min_tail : observations beyond a percentile below which it is thin.
    """

    def __init__(self, warmup: str | dict[str, float] = MSER_5, metrics: tuple[str, ...] = (), confidence: float = 0.95,
                 min_tail: float = MIN_TAIL):
        self.extra: dict[str, Any] = {}
        self.paid_share = np.empty(0)
        self._warmup, self._metrics, self._confidence, self._min_tail = warmup, metrics, confidence, min_tail

    @property
    def may_cut(self) -> bool:
        """Whether a warm-up may be cut: else a run needs no log of its iterations."""
        return self._warmup != NONE

    def __call__(self, run: Run) -> np.ndarray | None:
        """Return a mask of measured requests, bool (n,); None: no change."""
        rows = _in_order(run)
        requests = run.workload.requests
        if len(rows) < len(requests) or (np.diff(rows) != 1).any():      # a copy is a tenth of the look
            requests = requests[rows]
        num_cut, is_found = self._cut(requests)
        series = series_of(requests[num_cut:], {metric.partition(".")[0] for metric in self._metrics})
        queue = _backlog(requests, run.workload.demands["deadline_ns"][rows])
        self.extra = {"warmup_requests": num_cut, "warmup_found": is_found, "backlog": queue} | self._intervals(series)
        self.extra["too_short"] = not is_found or bool(self.extra["correlated"])
        self.extra["speed_gap_mean"] = gap_mean(*map(np.asarray, run.itl_ns.pairs()))
        if cut_notes(run):
            self.extra["is_cut"] = True
        counts = self._counts(run, rows, num_cut)
        part = run if counts is None else replace(run, window=narrowed(run, counts))
        paid_ns, lasts_ns = time_in_ns(part, PAID), measured_ns(part)
        self.paid_share = paid_ns / lasts_ns if lasts_ns else np.ones(len(paid_ns))
        return counts

    def _counts(self, run: Run, rows: np.ndarray, num_cut: int) -> np.ndarray | None:
        """Return a mask of measured requests without the first ones; None: no change."""
        if num_cut == 0:
            return None
        measured = np.ones(len(run.workload.requests), bool) if run.workload.measured is None else run.workload.measured
        counts = measured.copy()
        counts[rows[:num_cut]] = False
        return counts

    def _cut(self, requests: np.ndarray) -> tuple[int, bool]:
        if self._warmup == NONE:
            return 0, True
        if isinstance(self._warmup, dict):
            if "requests" in self._warmup:
                return min(int(self._warmup["requests"]), len(requests)), True
            until_ns = round(self._warmup["seconds"] * 1e9)
            return int(np.searchsorted(requests["arrival_ns"], until_ns)), True
        seen = np.flatnonzero((requests["first_token_ns"] >= 0) & (requests["output_tokens"] > 0))
        settled = mser_5((requests["first_token_ns"] - requests["arrival_ns"])[seen] / NS_PER_MS)
        return int(seen[settled.num_cut]) if settled.num_cut else 0, settled.is_found

    def _intervals(self, series: dict[str, np.ndarray]) -> dict[str, Any]:
        found = {"interval": {}, "correlated": [], "thin": []}
        for metric in self._metrics:
            name, _, statistic = metric.partition(".")
            values = series.get(name)
            if values is None or statistic not in ("mean", "p50", "p90", "p95", "p99"):
                continue
            values = values[~np.isnan(values)]
            if statistic == "mean":
                means = batch_means(values, confidence=self._confidence)
                found["interval"][metric] = None if np.isnan(means.half_width) else means.half_width
                if means.is_correlated:
                    found["correlated"].append(metric)
                continue
            share = int(statistic[1:]) / 100
            ranks = ranks_of(share, len(values), self._confidence)
            ordered = np.sort(values)
            found["interval"][metric] = ranks and float(ordered[ranks.high - 1] - ordered[ranks.low - 1]) / 2
            if is_thin(share, len(values), self._min_tail):
                found["thin"].append(metric)
        return found


def gap_mean(gaps_ns: np.ndarray, counts: np.ndarray) -> float | None:
    """Return the mean over gaps between tokens of 1 / gap, tokens a second.

    Nine gaps of 10 ms and one of 100 ms have 91. None: there is no gap, or one of 0.
    """
    if not len(gaps_ns) or not np.all(gaps_ns > 0):
        return None
    return float((counts * (1e9 / gaps_ns)).sum() / counts.sum())


def series_of(requests: np.ndarray, names: Collection[str] = SERIES) -> dict[str, np.ndarray]:
    """Return the values of requests, float64 (n,), NaN: none, by metric.

    requests : structured array (n,), `records.REQUEST`. names : requested metrics; only those in `SERIES` are returned.
    """
    is_done = requests["status"] == records.COMPLETED
    return {name: _series(name, requests, is_done) for name in SERIES if name in names}


def _series(name: str, requests: np.ndarray, is_done: np.ndarray) -> np.ndarray:
    since, until = SPANS[name]
    begun, ended = requests[since].astype(float), requests[until].astype(float)
    is_there, spans_ns = is_done, ended - begun
    if name == "tpot_ms":
        gaps = requests["output_tokens"].astype(float) - 1
        is_there = is_done & (gaps >= 1)
        spans_ns = np.divide(spans_ns, gaps, out=spans_ns, where=gaps >= 1)
    elif name != "e2el_ms":
        is_there = is_done & (ended >= 0)
    if name == "ttft_ms":
        is_there &= requests["output_tokens"] > 0       # without a token there is no first token
    return np.where(is_there, spans_ns / NS_PER_MS, np.nan)


def _in_order(run: Run) -> np.ndarray:
    """Return the rows of the requests that arrived and are measured, in order of arrival."""
    requests = run.workload.requests
    counts = records.has_come(requests["status"])
    if run.workload.measured is not None:
        counts &= run.workload.measured
    rows = np.flatnonzero(counts)
    return rows[np.argsort(requests["arrival_ns"][rows], kind="stable")]


def _backlog(requests: np.ndarray, deadline_ns: np.ndarray) -> str:
    """Return the trend of the queue; refused or lost requests were never in it, and those that gave up have left."""
    status = requests["status"]
    stays = ~np.isin(status, (records.REJECTED, records.DROPPED, records.FAILED))
    if not stays.all():
        requests, deadline_ns, status = requests[stays], deadline_ns[stays], status[stays]
    left = np.where(requests["completed_ns"] >= 0, requests["completed_ns"].astype(float), np.inf)
    gave_up = (status == records.TIMED_OUT) & (deadline_ns >= 0)
    left[gave_up] = deadline_ns[gave_up]
    first = np.where(requests["first_token_ns"] >= 0, requests["first_token_ns"].astype(float), np.nan)
    return backlog(requests["arrival_ns"].astype(float), left, first)
