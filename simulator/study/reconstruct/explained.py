"""Series of a replay beside the measured ones, and the misfit of both."""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simulator.results.result import Result
from simulator.study.reconstruct.windows import FIRST, RUNNING, WAITING, increases, resets_of
from simulator.study.server_metrics.instances import Instance

RATES = {"request_success_total": "requests ended/s", "prompt_tokens_total": "prompt tokens/s",
         "generation_tokens_total": "output tokens/s", "num_preemptions_total": "preemptions/s"}
GAUGES = {RUNNING: "running", WAITING: "waiting", "kv_cache_usage_perc": "KV cache usage, %"}
MEANS = {       # numerator, denominator -> label, factor
    (f"{FIRST}_sum", f"{FIRST}_count"): ("TTFT mean, ms", 1e3),
    ("inter_token_latency_seconds_sum", "inter_token_latency_seconds_count"): ("ITL mean, ms", 1e3),
    ("e2e_request_latency_seconds_sum", "e2e_request_latency_seconds_count"): ("E2EL mean, ms", 1e3),
    ("request_queue_time_seconds_sum", "request_queue_time_seconds_count"): ("queue time mean, ms", 1e3),
    ("prefix_cache_hits_total", "prefix_cache_queries_total"): ("prefix hit rate, %", 100.0),
}


E2EL = "e2e_request_latency_seconds"
SPREAD = (FIRST, E2EL)          # histograms that are compared


class Seen(NamedTuple):
    """Series of all instances together, by window.

    edges_s : (w, 2) begin and end. grown : counter -> increase in each window; NaN: not known.
    level : gauge -> value at the end of each window, of all instances; of KV cache usage the mean.
    spread : histogram -> upper bounds, and values of the whole time up to each.
    """

    edges_s: np.ndarray
    grown: dict[str, np.ndarray]
    level: dict[str, np.ndarray]
    spread: dict[str, tuple[np.ndarray, np.ndarray]]


class Row(NamedTuple):
    """The means of a series.

    explained : share of its variance over the windows; None: it is constant.
    """

    name: str
    measured: float
    simulated: float
    explained: float | None


def seen_of(instances: Sequence[Instance]) -> Seen:
    """Return the series of windows with scrapes of all instances and no restart."""
    rows: dict[tuple[float, float], list[tuple[int, int]]] = {}
    resets = [resets_of(each) for each in instances]
    for i, instance in enumerate(instances):
        for k in np.flatnonzero(~resets[i]).tolist():
            rows.setdefault((float(instance.times_s[k]), float(instance.times_s[k + 1])), []).append((i, k))
    whole = sorted((edge, places) for edge, places in rows.items() if len(places) == len(instances))
    edges_s = np.array([edge for edge, _ in whole]).reshape(-1, 2)
    counters = {name for pair in MEANS for name in pair} | set(RATES)

    def together(name: str, of_instance) -> np.ndarray:
        return np.array([sum(of_instance(i, k) for i, k in places) for _, places in whole])

    grown, level = {}, {}
    for name in sorted(counters):
        if all(name in each.values for each in instances):
            parts = [increases(each.values[name], reset) for each, reset in zip(instances, resets, strict=True)]
            grown[name] = together(name, lambda i, k, parts=parts: parts[i][k])
    for name in GAUGES:
        if all(name in each.values for each in instances):
            level[name] = together(name, lambda i, k, name=name: instances[i].values[name][k + 1])
    if "kv_cache_usage_perc" in level:
        level["kv_cache_usage_perc"] = level["kv_cache_usage_perc"] * 100 / len(instances)
    return Seen(edges_s, grown, level, {
        name: found for name in SPREAD if (found := _spread(instances, resets, name)) is not None})


def _spread(instances: Sequence[Instance], resets: list[np.ndarray], name: str) -> tuple | None:
    if not all(name in each.buckets for each in instances):
        return None
    bounds = instances[0].buckets[name][0]
    if any(not np.array_equal(each.buckets[name][0], bounds) for each in instances):
        return None
    return bounds, sum(increases(each.buckets[name][1], reset).sum(axis=0)
                       for each, reset in zip(instances, resets, strict=True))


def replayed(result: Result, seen: Seen, zero_s: float, step_s: float) -> Seen:
    """Return the same series of a replay.

    zero_s : beginning of its simulated time. step_s : distance of its samples.
    """
    requests, edges_ns = result.requests, np.round((seen.edges_s - zero_s) * 1e9)
    done, first = requests[requests["completed_ns"] >= 0], requests[requests["first_token_ns"] >= 0]
    placed = requests[requests["scheduled_ns"] >= 0]
    many = done[done["output_tokens"] > 1]

    def grown(events_ns: np.ndarray, weights=None) -> np.ndarray:
        order = np.argsort(events_ns, kind="stable")
        total = np.r_[0.0, np.cumsum(np.ones(len(order)) if weights is None else weights[order])]
        places = np.searchsorted(events_ns[order], edges_ns, side="right")
        return total[places[:, 1]] - total[places[:, 0]]

    ended_ns, first_ns, placed_ns = done["completed_ns"], first["first_token_ns"], placed["scheduled_ns"]
    spans = {E2EL: (ended_ns, done["completed_ns"] - done["arrival_ns"], None),
             FIRST: (first_ns, first["first_token_ns"] - first["arrival_ns"], None),
             "request_queue_time_seconds": (ended_ns, done["scheduled_ns"] - done["enqueued_ns"], None),
             "inter_token_latency_seconds": (
                 many["completed_ns"], many["completed_ns"] - many["first_token_ns"], many["output_tokens"] - 1)}
    made = {"request_success_total": grown(ended_ns), "prompt_tokens_total": grown(first_ns, first["prompt_tokens"]),
            "generation_tokens_total": _generated(done, edges_ns),
            "num_preemptions_total": grown(ended_ns, done["preemptions"]),
            "prefix_cache_queries_total": grown(placed_ns, placed["prompt_tokens"]),
            "prefix_cache_hits_total": grown(placed_ns, placed["cached_tokens"])}
    for name, (events_ns, durations_ns, counts) in spans.items():
        made |= {f"{name}_sum": grown(events_ns, durations_ns / 1e9), f"{name}_count": grown(events_ns, counts)}
    values_s = {FIRST: spans[FIRST][1] / 1e9, E2EL: spans[E2EL][1] / 1e9}
    spread = {name: (bounds, np.searchsorted(np.sort(values_s[name]), bounds, side="right").astype(float))
              for name, (bounds, _) in seen.spread.items()}
    return Seen(seen.edges_s, made, _levels(result, seen, edges_ns[:, 1], step_s), spread)


def _generated(done: np.ndarray, edges_ns: np.ndarray) -> np.ndarray:
    """Return output tokens by window; those of a request are evenly spread between its first and last."""
    times_ns = np.unique(edges_ns)
    first_ns, last_ns = done["first_token_ns"].astype(float), done["completed_ns"].astype(float)
    counts = np.zeros(len(times_ns))
    tokens, span_ns = done["output_tokens"].astype(float), np.maximum(last_ns - first_ns, 1.0)
    for i, time_ns in enumerate(times_ns):
        counts[i] = (np.clip((time_ns - first_ns) / span_ns, 0.0, 1.0) * (tokens - 1) + (time_ns >= first_ns)).sum()
    places = np.searchsorted(times_ns, edges_ns)
    return counts[places[:, 1]] - counts[places[:, 0]]


def _levels(result: Result, seen: Seen, times_ns: np.ndarray, step_s: float) -> dict[str, np.ndarray]:
    samples, step_ns = result.replica_samples, step_s * 1e9
    place = np.round(samples["time_ns"] / step_ns).astype(np.int64)
    looks = np.round(times_ns / step_ns).astype(np.int64)
    size = int(max(place.max(initial=0), looks.max(initial=0))) + 1
    blocks = max(int(result.replicas["num_blocks"].sum()), 1)
    made = {RUNNING: samples["running"], WAITING: samples["waiting"],
            "kv_cache_usage_perc": samples["used_blocks"] * 100 / blocks}
    return {name: np.bincount(place, values, size)[looks] for name, values in made.items() if name in seen.level}


def rows_of(measured: Seen, simulated: Seen) -> list[Row]:
    """Return a row for each measured series."""
    span_s = np.diff(measured.edges_s, axis=1)[:, 0]
    rows = [_row(label, measured.grown[name] / span_s, simulated.grown[name] / span_s)
            for name, label in RATES.items() if name in measured.grown]
    rows += [_row(label, measured.level[name], simulated.level[name])
             for name, label in GAUGES.items() if name in measured.level]
    for (above, below), (label, factor) in MEANS.items():
        if above in measured.grown and below in measured.grown and measured.grown[below].sum() > 0:
            ours, theirs = (_ratio(each.grown[above], each.grown[below]) * factor for each in (simulated, measured))
            row = _row(label, theirs, ours)
            rows.append(row._replace(measured=mean_of(measured, above, below) * factor,
                                     simulated=mean_of(simulated, above, below) * factor))
    return rows


def mean_of(seen: Seen, above: str, below: str) -> float:
    """Return a mean over the whole time; 0: there is nothing to divide by."""
    total = float(seen.grown[below].sum())
    return float(seen.grown[above].sum()) / total if total else 0.0


def misfit(measured: Seen, simulated: Seen) -> float:
    """Return the distance of facts that a shape decides; 0: they agree.

    The distributions of TTFT and E2EL (the largest distance of both), the mean TTFT (its logarithm), the waiting, and
    the hit rate.
    """
    found = 0.0
    for name in measured.spread:
        ours, theirs = (each.spread[name][1] / max(each.spread[name][1][-1], 1.0) for each in (simulated, measured))
        found += float(np.abs(ours - theirs).max())
    pair = (f"{FIRST}_sum", f"{FIRST}_count")
    if pair[0] in measured.grown and mean_of(measured, *pair) > 0:
        found += abs(float(np.log(max(mean_of(simulated, *pair), 1e-9) / mean_of(measured, *pair))))
    if WAITING in measured.level and len(measured.level[WAITING]):
        ours, theirs = (float(np.nan_to_num(each.level[WAITING]).mean()) for each in (simulated, measured))
        found += abs(float(np.log((1 + ours) / (1 + theirs))))
    hits = ("prefix_cache_hits_total", "prefix_cache_queries_total")
    if hits[0] in measured.grown and hits[1] in measured.grown:
        found += 2 * abs(mean_of(simulated, *hits) - mean_of(measured, *hits))
    return found


def _row(label: str, measured: np.ndarray, simulated: np.ndarray) -> Row:
    known = np.isfinite(measured) & np.isfinite(simulated)
    measured, simulated = measured[known], simulated[known]
    if not len(measured):
        return Row(label, 0.0, 0.0, None)
    spread = float(((measured - measured.mean()) ** 2).sum())
    rest = float(((measured - simulated) ** 2).sum())
    return Row(label, float(measured.mean()), float(simulated.mean()), 1 - rest / spread if spread > 0 else None)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
