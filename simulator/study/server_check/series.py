"""Series that a server reports: gauges and counters over time, and facts."""
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

# Names of vLLM's metrics without "vllm:", newest first; sources: vLLM 0.33.0 and 0.10.1, v1/metrics/loggers.py.
GAUGES = {"running": ("num_requests_running",), "waiting": ("num_requests_waiting",),
          "kv_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc")}
COUNTERS = {
    "prompt_tokens": ("prompt_tokens_total",), "output_tokens": ("generation_tokens_total",),
    "queries": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    "hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"), "preemptions": ("num_preemptions_total",),
    "ended": ("request_success_total",), "first_tokens": ("time_to_first_token_seconds_count",),
    "ttft_s": ("time_to_first_token_seconds_sum",),
    "gaps": ("inter_token_latency_seconds_count", "time_per_output_token_seconds_count"),
    "gap_s": ("inter_token_latency_seconds_sum", "time_per_output_token_seconds_sum"),
    "queued": ("request_queue_time_seconds_count",), "queue_s": ("request_queue_time_seconds_sum",),
    "prompts": ("request_prompt_tokens_count",), "prompt_lengths": ("request_prompt_tokens_sum",),
    "answers": ("request_generation_tokens_count",), "answer_lengths": ("request_generation_tokens_sum",),
    "steps": ("iteration_tokens_total_count",), "step_tokens": ("iteration_tokens_total_sum",)}
NAMES = (*GAUGES, *COUNTERS, "hit_share")
BY_METRIC = {f"vllm:{metric}": name for table in (GAUGES, COUNTERS) for name, metrics in table.items()
             for metric in metrics}


class Facts(NamedTuple):
    """Values that do not change while a server runs; None: not reported.

    kv_tokens : tokens that the KV cache of one engine holds. engines : number of engines that report.
    longest_bound : largest bound of the histogram of prompt lengths, the last of 1, 2, 5, 10, ... within max_model_len.
    prefix_caching : the flag, where it is reported.
    """

    kv_tokens: float | None = None
    engines: int | None = None
    longest_bound: float | None = None
    prefix_caching: bool | None = None


class Series(NamedTuple):
    """Series of one server, all engines together.

    times_s : float (n,), increasing. values : float (n,) by name of `NAMES`; NaN where a value is missing. Counters
    never fall: a restart goes on where the counter ended. restarts : seen in the counters.
    """

    times_s: np.ndarray
    values: dict[str, np.ndarray]
    facts: Facts
    restarts: int = 0

    @property
    def span_s(self) -> float:
        """Time from the first reading to the last."""
        return float(self.times_s[-1] - self.times_s[0])

    def until(self, seconds: float) -> "Series":
        """Return the series up to a time after the first reading."""
        kept = self.times_s <= self.times_s[0] + seconds
        return self._replace(times_s=self.times_s[kept],
                             values={name: values[kept] for name, values in self.values.items()})

    def column(self, name: str) -> np.ndarray:
        """Return a series by name, NaN throughout where the server does not report it."""
        return self.values.get(name, np.full(len(self.times_s), np.nan))

    def rise(self, name: str) -> float:
        """Return the rise of a counter; NaN: it has fewer than two readings."""
        found = self.column(name)
        found = found[~np.isnan(found)]
        return float(found[-1] - found[0]) if len(found) > 1 else np.nan

    def ratio(self, over: str, under: str) -> float:
        """Return the quotient of the rises of two counters; NaN: the divisor did not rise."""
        below = self.rise(under)
        return self.rise(over) / below if below > 0 else np.nan


class Reading(NamedTuple):
    """One value of one source, before sources are added up.

    source : labels that distinguish engines and servers.
    """

    time_s: float
    name: str
    source: str
    value: float


def series_of(readings: Iterable[Reading], facts: Facts) -> Series:
    """Return the series of readings: sums over all sources, means for shares.

    A time at which a source is missing has NaN.
    """
    by_name: dict[str, dict[str, dict[float, float]]] = {}
    for each in readings:
        by_name.setdefault(each.name, {}).setdefault(each.source, {})[each.time_s] = each.value
    times_s = sorted({time_s for sources in by_name.values() for found in sources.values() for time_s in found})
    place = {time_s: number for number, time_s in enumerate(times_s)}
    values, restarts = {}, 0
    for name, sources in by_name.items():
        table = np.full((len(sources), len(times_s)), np.nan)
        for row, found in zip(table, sources.values(), strict=True):
            row[[place[time_s] for time_s in found]] = list(found.values())
            if name in COUNTERS:
                restarts = max(restarts, _continue(row))
        values[name] = table.mean(axis=0) if name in ("kv_usage", "hit_share") else table.sum(axis=0)
    return Series(np.array(times_s), values, facts, restarts)


def _continue(row: np.ndarray) -> int:
    """Let a counter go on where it ended before a restart; return how many there were."""
    known = np.flatnonzero(~np.isnan(row))
    found = row[known]
    falls = np.flatnonzero(np.diff(found) < 0)
    for fall in falls:
        row[known[fall + 1:]] += found[fall]
    return len(falls)
