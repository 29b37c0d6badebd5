"""Metrics of a model as monitoring shows them: gauges of replicas and gateway, and times to first token."""
import numpy as np

from simulator.scaling.base import Observation

# Upper ends in seconds. Source: vLLM 0.32.0, vllm/v1/metrics/loggers.py, histogram_time_to_first_token.
TTFT_BUCKETS_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
                  40.0, 80.0, 160.0, 640.0, 2560.0)
OF_REPLICAS = ("waiting", "running", "kv_cache", "in_flight")


def gauge(observation: Observation, name: str) -> np.ndarray:
    """Return a metric of each replica with a known report.

    name : waiting, running, kv_cache (share of the KV blocks in use) or in_flight.
    """
    known = observation.known()
    states = observation.states()[known]
    if name == "kv_cache":
        return states["used_blocks"] / np.maximum(states["num_blocks"], 1)
    return (observation.accounts()[known] if name == "in_flight" else states)[name]


def ttft_s(observation: Observation, quantile: float | None) -> float | None:
    """Return a quantile of the times to first token, or their mean; None: no times."""
    times_ns = observation.ttft_ns
    if times_ns is None or not len(times_ns):
        return None
    return float(times_ns.mean()) / 1e9 if quantile is None else histogram_quantile(times_ns / 1e9, quantile)


def histogram_quantile(values: np.ndarray, quantile: float, ends: tuple[float, ...] = TTFT_BUCKETS_S) -> float:
    """Return a quantile of values that are known by their buckets only.

    Within its bucket the quantile is interpolated linearly; above the last end it is that end. Source: Prometheus,
    "Query functions", histogram_quantile.
    """
    counts = np.searchsorted(np.sort(values), ends, side="right")       # values <= each end
    rank = quantile * len(values)
    bucket = int(np.searchsorted(counts, rank, side="left"))
    if bucket == len(ends):
        return ends[-1]
    below, begin = (int(counts[bucket - 1]), ends[bucket - 1]) if bucket else (0, 0.0)
    inside = int(counts[bucket]) - below
    return begin + (ends[bucket] - begin) * ((rank - below) / inside if inside else 1.0)
