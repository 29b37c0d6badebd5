"""Series of one server: gauges and counters over time, and facts."""
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from simulator.study.server_metrics.names import CONFIG, HIT_RATE
from simulator.study.server_metrics.series import Series, joined, summed, times_of, upper_bound

# Metrics that are compared, by names of their own.
GAUGES = {"running": "num_requests_running", "waiting": "num_requests_waiting", "kv_usage": "kv_cache_usage_perc"}
COUNTERS = {
    "prompt_tokens": "prompt_tokens_total", "output_tokens": "generation_tokens_total",
    "queries": "prefix_cache_queries_total", "hits": "prefix_cache_hits_total", "preemptions": "num_preemptions_total",
    "ended": "request_success_total", "first_tokens": "time_to_first_token_seconds_count",
    "ttft_s": "time_to_first_token_seconds_sum", "gaps": "inter_token_latency_seconds_count",
    "gap_s": "inter_token_latency_seconds_sum", "queued": "request_queue_time_seconds_count",
    "queue_s": "request_queue_time_seconds_sum", "prompts": "request_prompt_tokens_count",
    "prompt_lengths": "request_prompt_tokens_sum", "answers": "request_generation_tokens_count",
    "answer_lengths": "request_generation_tokens_sum", "steps": "iteration_tokens_total_count",
    "step_tokens": "iteration_tokens_total_sum"}
BY_METRIC = {metric: name for table in (GAUGES, COUNTERS, {"hit_share": HIT_RATE}) for name, metric in table.items()}
LENGTHS = "request_prompt_tokens_bucket"
OF_VALUES = ("le", "finished_reason")       # labels that do not distinguish engines and servers
YES = {"true": True, "false": False}


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


class ServerSeries(NamedTuple):
    """Series of one server, all engines together.

    times_s : float (n,), increasing. values : float (n,) by name; NaN where a value is missing. Counters
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

    def until(self, seconds: float) -> "ServerSeries":
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


def series_of(found: Iterable[Series]) -> ServerSeries:
    """Return the series of a server: sums over all sources, means for shares.

    A time at which a source is missing has NaN.

    Raises
    ------
    InputErrors
        A bucket has no number as its bound.
    """
    known = joined(found)
    by_name: dict[str, dict[tuple, list[Series]]] = {}
    for each in known:
        if each.name in BY_METRIC:
            source = tuple(sorted(label for label in each.labels.items() if label[0] not in OF_VALUES))
            by_name.setdefault(BY_METRIC[each.name], {}).setdefault(source, []).append(each)
    times_s = times_of(each for each in known if each.name in BY_METRIC)
    values, restarts = {}, 0
    for name, sources in by_name.items():
        table = np.stack([summed(members, times_s) for members in sources.values()])
        if name in COUNTERS:
            restarts = max(restarts, *map(_continue, table))
        values[name] = table.mean(axis=0) if name in ("kv_usage", "hit_share") else table.sum(axis=0)
    return ServerSeries(times_s, values, _facts_of(known, len(by_name.get("running", ()))), restarts)


def _facts_of(known: Iterable[Series], engines: int) -> Facts:
    sizes, flags, bounds = {}, {}, []
    for each in known:
        if each.name == CONFIG:
            flags |= each.labels
            sizes[each.labels.get("engine"), each.labels.get("instance")] = _tokens(each.labels)
        elif each.name == LENGTHS:
            bounds.append(upper_bound(each))
    tokens = [size for size in sizes.values() if size]
    return Facts(sum(tokens) / len(tokens) if tokens else None, engines or None,
                 max(filter(np.isfinite, bounds), default=None),
                 YES.get(flags.get("enable_prefix_caching", "").lower()))


def _tokens(labels: Mapping[str, str]) -> float | None:
    """Return the tokens of a KV cache by its labels; None: they do not say."""
    try:
        return float(labels["num_gpu_blocks"]) * float(labels["block_size"])
    except (KeyError, ValueError):
        return None


def _continue(row: np.ndarray) -> int:
    """Let a counter go on where it ended before a restart; return how many there were."""
    known = np.flatnonzero(~np.isnan(row))
    found = row[known]
    falls = np.flatnonzero(np.diff(found) < 0)
    for fall in falls:
        row[known[fall + 1:]] += found[fall]
    return len(falls)
