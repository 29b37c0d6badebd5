"""A client's record of each request, as vLLM's benchmark has it, and its metrics.

Definitions: vllm-project/vllm, vllm/benchmarks/serve.py at 009e6d4a, `calculate_metrics` and `benchmark`. Means and
percentiles are NumPy's, deviations those of the population; failed requests are not counted.
"""
import math
from collections import Counter
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from simulator.domain import records

METRICS = {                     # name -> printed label, heading
    "ttft": ("TTFT", "Time to First Token"), "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"), "e2el": ("E2EL", "End-to-end Latency"),
    "client_queue_time": ("Client Queue Time", "Client-side Queueing"),
    "e2el_including_client_queue": ("E2EL incl. Client Queue", "Queue-inclusive End-to-end Latency")}
GOODPUT = ("ttft", "tpot", "e2el")


class Seen(NamedTuple):
    """Requests in the order of the data set, as lists.

    Times are in s, from the start of the benchmark.

    success : the request was completed; where not, the other lists have 0 or [].
    itls : gaps between messages with tokens; a message may have several tokens.
    """

    success: list[bool]
    input_lens: list[int]
    output_lens: list[int]
    start_times: list[float]
    ttfts: list[float]
    itls: list[list[float]]
    latencies: list[float]
    queue_times: list[float]


def seen(result) -> Seen:
    """Return the client's record of a run with token times; warm-ups are left out.

    The benchmark starts at 0, or at the end of the last warm-up.
    """
    requests, (offsets, times_ns) = result.requests, result.token_times
    names = requests.dtype.names
    counts = requests["measured"] == 1 if "measured" in names else np.ones(len(requests), bool)
    start_ns = max(0, int(requests["completed_ns"][~counts].max(initial=0)))
    queue_ns = requests["client_queue_ns"] if "client_queue_ns" in names else np.zeros(len(requests), np.int64)
    made = Seen([], [], [], [], [], [], [], [])
    for row in np.flatnonzero(counts).tolist():
        request = requests[row]
        success = bool(request["status"] == records.COMPLETED)
        messages_ns = np.unique(times_ns[offsets[row]:offsets[row + 1]]) if success else np.zeros(0, np.int64)
        sent_ns = int(request["arrival_ns"])
        last_ns = int(request["completed_ns"])
        for values, value in zip(made, (
                success, int(request["prompt_tokens"]), int(request["output_tokens"]) if success else 0,
                (sent_ns - start_ns) / 1e9, (int(request["first_token_ns"]) - sent_ns) / 1e9 if success else 0.0,
                (np.diff(messages_ns) / 1e9).tolist(), (last_ns - sent_ns) / 1e9 if success else 0.0,
                int(queue_ns[row]) / 1e9), strict=True):
            values.append(value)
    return made


def duration_s(found: Seen) -> float:
    """Return the time from the start to the last answer; 0 if there is none."""
    return max((start + latency for start, latency, success in zip(
        found.start_times, found.latencies, found.success, strict=True) if success), default=0.0)


def samples(found: Seen, has_queue: bool, has_rate: bool) -> dict[str, list[float]]:
    """Return the values of each metric, in s.

    has_queue : requests wait for a slot at the client. has_rate : they also have due times of their own.
    """
    rows = [row for row, success in enumerate(found.success) if success]
    latencies = [found.latencies[row] for row in rows]
    queue = [found.queue_times[row] for row in rows]
    values = {
        "ttft": [found.ttfts[row] for row in rows],
        "tpot": [_tpot(found, row) for row in rows if found.output_lens[row] > 1],
        "itl": [gap for row in rows for gap in found.itls[row]],
        "e2el": latencies}
    if has_queue:
        values["client_queue_time"] = queue
        if has_rate:
            values["e2el_including_client_queue"] = [one + other for one, other in zip(latencies, queue, strict=True)]
    return values


def counts(found: Seen, duration: float, goodput: dict[str, float]) -> dict[str, Any]:
    """Return counts and throughputs by vLLM's keys.

    goodput : bounds in ms, of GOODPUT; empty: not requested, and the goodput is None.
    """
    completed, inputs = sum(found.success), sum(
        tokens for tokens, success in zip(found.input_lens, found.success, strict=True) if success)
    outputs = sum(found.output_lens)

    def per_second(count: float) -> float:
        return count / duration if duration else 0.0

    return {"completed": completed, "failed": len(found.success) - completed, "total_input_tokens": inputs,
            "total_output_tokens": outputs, "request_throughput": per_second(completed),
            "request_goodput": per_second(_num_good(found, goodput)) if goodput else None,
            "output_throughput": per_second(outputs), "total_token_throughput": per_second(inputs + outputs)}


def peaks(found: Seen) -> dict[str, float | int]:
    """Return the most messages, and the most requests, in one second.

    Seconds count from the first start. A request counts in each second that it touches, as in vLLM 0.32; later versions
    count requests that are in flight at one instant.
    """
    rows = [row for row, success in enumerate(found.success) if success]
    if not rows:
        return {"max_output_tokens_per_s": 0.0, "max_concurrent_requests": 0}
    first = min(found.start_times[row] for row in rows)
    messages, touched = Counter(), Counter()
    for row in rows:
        start_s = found.start_times[row]
        times_s = accumulate((start_s + found.ttfts[row], *found.itls[row]))
        messages.update(int(time_s - first) for time_s in times_s)
        touched.update(range(int(start_s - first), math.ceil(start_s + found.latencies[row] - first)))
    return {"max_output_tokens_per_s": float(max(messages.values())),
            "max_concurrent_requests": max(touched.values(), default=0)}


def statistics_ms(values_s: list[float], percentiles: list[float]) -> dict[str, float]:
    """Return mean, median, deviation and percentiles, in ms; 0 without values.

    Their names are the prefixes of vLLM's keys.
    """
    values = np.array(values_s or [0.0])
    found = {"mean": values.mean(), "median": np.median(values), "std": values.std()}
    found |= {f"p{word(p)}": np.percentile(values, p) for p in percentiles}
    return {name: float(value) * 1000 for name, value in found.items()}


def word(percentile: float) -> str:
    """Return a percentile as in names: 99, 99.9."""
    return str(int(percentile)) if percentile == math.floor(percentile) else str(percentile)


def _tpot(found: Seen, row: int) -> float:
    tokens = found.output_lens[row]
    return (found.latencies[row] - found.ttfts[row]) / (tokens - 1) if tokens > 1 else 0.0


def _num_good(found: Seen, goodput: dict[str, float]) -> int:
    measures = {"ttft": lambda row: found.ttfts[row], "tpot": lambda row: _tpot(found, row),
                "e2el": lambda row: found.latencies[row]}
    return sum(success and all(bound / 1000 >= measures[name](row) for name, bound in goodput.items())
               for row, success in enumerate(found.success))
