"""The numbers of summary.json, as pure functions of the finished tables.

Names and definitions are those of `vllm bench serve` (vLLM 0.32, vllm/benchmarks/serve.py, `calculate_metrics`):
totals, throughputs and latencies are those of completed requests, deviations are those of the population, and goodput
asks every given bound to hold. Queue time is vLLM's server-side one (vllm:request_queue_time_seconds): waiting queue to
first scheduled. What the other requests had by then stands under `not_completed`. Gaps between tokens are counted as
they happen, before anybody knows what becomes of the request: `itl_ms` holds those of the others too, and
`not_completed` says of how many (`in_itl`).
"""
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from simulator.domain import records, slo_classes
from simulator.domain.run import Run
from simulator.results import cluster, encoding, hand_over, speculation
from simulator.results.distributions import distribution, weighted_distribution_ms
from simulator.results.finish import cut_short
from simulator.results.journeys import journeys_of
from simulator.results.measured import measured_part
from simulator.results.overload import load_of
from simulator.results.traits import metrics_of

SCHEMA = 1
COUNTED = ("completed", "rejected", "dropped", "timed_out", "failed", "waiting", "running")


def summarise(run: Run, bounds, pools: tuple[cluster.PoolFacts, ...] = ()) -> dict:
    """Return the metrics of summary.json, from `complete` on.

    Where a set is empty its statistics are None; no value is NaN or infinite.

    Parameters
    ----------
    bounds : object with `ttft_ms`, `tpot_ms`, `e2el_ms`, each a float or None
        Service level objectives; None: not asked for; and `classes`, tuple of SloClass with their own. The Struct of
        [slo] is one; so below.
    pools : as the experiment has them; empty: it has none.
    """
    run = measured_part(run)
    requests, journeys = run.workload.requests, journeys_of(run)
    duration_s = duration_s_of(requests, run.since_ns)
    verdicts = verdicts_of(run, bounds)
    is_cut = np.zeros(len(requests), bool)
    is_cut[cut_short(run.workload)] = True
    return {
        "complete": bool(run.complete),
        "requests": count_by_status(requests, is_cut) | not_sent(run.workload) | pool_capped(run.workload),
        "by_cause": cluster.by_cause(requests, journeys),
        "duration_s": duration_s,
        "clock_s": int(run.clock_ns) / 1e9,
        **throughput(requests, duration_s, verdicts.num_good()),
        **load_of(run, journeys),
        **latencies(completed_of(requests)),
        **metrics_of(run),
        **hand_over.metrics_of(run),
        **encoding.metrics_of(run),
        "itl_ms": weighted_distribution_ms(run.itl_ns),
        "not_completed": not_completed(requests),
        **cluster.gateway(journeys),
        "iterations": int(run.replicas["iterations"].sum()),
        **preemptions(run),
        "kv_cache": kv_cache(run.replicas),
        "prefix_cache": prefix_cache(run.replicas),
        **kv_tiers(run),
        **({} if run.adapters is None else {"adapters": run.adapters}),
        **speculation.metrics_of(run),
        "by_slo_class": breakdown(run, "slo_class", verdicts, is_cut),
        "by_tenant": breakdown(run, "tenant", verdicts, is_cut),
        "by_model": breakdown(run, "model", verdicts, is_cut),
        "fairness": cluster.fairness(run),
        "by_pool": (parts := cluster.by_pool(run, pools)),
        "cost_by_node": encoding.with_costs(cluster.cost_by_node(pools, parts), run),
        "replicas": _replicas(run.replicas, cluster.replica_shares(run, pools)),
        **({} if run.decisions is None else {"decisions": run.decisions}),
        "latency": dict(run.latency),
        "diagnosis": [*run.diagnosis, *remarks(run.workload, is_cut)],
    }


def preemptions(run: Run) -> dict:
    """Count preemptions; by cause, where some are for places of those that wait."""
    count = int(run.replicas["preemptions"].sum())
    if run.given_way is None:
        return {"preemptions": count}
    return {"preemptions": count, "preemptions_by_cause": {"places": run.given_way, "blocks": count - run.given_way}}


def remarks(workload, is_cut: np.ndarray) -> list[str]:
    """Say what a reader of the numbers should know about them, one sentence each.

    is_cut : bool (n,), what max_model_len cut; likewise below.
    """
    found = _ungrammatical(workload)
    for rows, where, why in (
            (np.flatnonzero(is_cut), "at max_model_len", "prompt and whole output are longer"),
            (cut_short(workload, records.KV_POOL), "where the KV pool of their replica ends",
             "the engine lets no text grow beyond; give it more blocks")):
        if len(rows):
            what = "1 output was" if len(rows) == 1 else f"{len(rows)} outputs were"
            found.append(f"{what} cut {where}, request {workload.request_ids[rows[0]]} first: {why}; they count as "
                         "completed, with the tokens they got")
    return found


def _ungrammatical(workload) -> list[str]:
    """Say how many requests failed without a token, since their grammar did not compile."""
    requests = workload.requests
    rows = np.flatnonzero((requests["status"] == records.FAILED) & (workload.demands["grammar"] >= 0)
                          & (requests["scheduled_ns"] < 0))
    if not len(rows):
        return []
    return [f"{len(rows)} request{'s' * (len(rows) > 1)} failed, {workload.request_ids[rows[0]]} first: the grammar of "
            "the answer did not compile"]


def count_by_status(requests: np.ndarray, is_cut: np.ndarray) -> dict[str, int]:
    """Count requests by what became of them.

    Those that had not arrived, or were not sent, are not injected; `length_capped` are those of the completed that
    max_model_len cut.
    """
    counts = np.bincount(requests["status"], minlength=len(records.STATUS_NAMES)).tolist()
    if len(counts) > len(records.STATUS_NAMES):
        raise AssertionError(f"unknown request status {len(counts) - 1}")
    by_name = dict(zip(records.STATUS_NAMES, counts, strict=True))
    return {"injected": len(requests) - by_name["pending"] - by_name["not_sent"],
            **{name: by_name[name] for name in COUNTED}, "length_capped": int(is_cut.sum())}


def pool_capped(workload) -> dict[str, int]:
    """Count completed requests that the size of a KV pool cut, where that can be."""
    return {} if workload.pool_cuts is None else {"pool_capped": len(cut_short(workload, records.KV_POOL))}


def not_sent(workload) -> dict[str, int]:
    """Count requests that never came, where that can be."""
    never = workload.requests["status"] == records.NOT_SENT
    return {} if workload.script is None else {"not_sent": int(never.sum())}


def completed_of(requests: np.ndarray) -> np.ndarray:
    """Return the completed requests."""
    return _only(requests, requests["status"] == records.COMPLETED)


def duration_s_of(requests: np.ndarray, since_ns: int = 0) -> float:
    """Return the time from `since_ns` to the last completion; 0 if nothing completed."""
    completed = completed_of(requests)["completed_ns"]
    return (int(completed.max()) - since_ns) / 1e9 if len(completed) else 0.0


def throughput(requests: np.ndarray, duration_s: float, num_good: int | None) -> dict[str, float | int | None]:
    """Return totals over completed requests, and the same per second of `duration_s`.

    num_good : those that kept their bounds; None: there are none.
    """
    completed = completed_of(requests)
    input_tokens = int(completed["prompt_tokens"].sum(dtype=np.int64))
    output_tokens = int(completed["output_tokens"].sum(dtype=np.int64))

    def per_second(count):
        return count / duration_s if duration_s else 0.0

    return {
        "total_input_tokens": input_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": per_second(len(completed)),
        "output_throughput": per_second(output_tokens),
        "total_token_throughput": per_second(input_tokens + output_tokens),
        "request_goodput": None if num_good is None else per_second(num_good),
    }


def ttft_ms(requests: np.ndarray) -> np.ndarray:
    """Return arrival to first observed token; all requests must have one."""
    return (requests["first_token_ns"] - requests["arrival_ns"]) / 1e6


def e2el_ms(completed: np.ndarray) -> np.ndarray:
    """Return arrival to last observed token of completed requests."""
    return (completed["completed_ns"] - completed["arrival_ns"]) / 1e6


def tpot_ms(completed: np.ndarray) -> np.ndarray:
    """Return (E2EL - TTFT) / (output tokens - 1) of completed requests.

    It is 0 where there is one token or none.
    """
    decode_ms = (completed["completed_ns"] - completed["first_token_ns"]) / 1e6
    later_tokens = completed["output_tokens"] - 1
    return np.divide(decode_ms, later_tokens, out=np.zeros(len(completed)), where=later_tokens > 0)


def any_given(bounds) -> bool:
    """Say whether there is a service level objective at all."""
    return any(bound is not None for bound in (bounds.ttft_ms, bounds.tpot_ms, bounds.e2el_ms))


def meets(completed: np.ndarray, bounds) -> np.ndarray:
    """Say for each completed request whether every given bound holds.

    What equals its bound is still good.
    """
    good = np.ones(len(completed), bool)
    for bound, measure in ((bounds.ttft_ms, ttft_ms), (bounds.tpot_ms, tpot_ms), (bounds.e2el_ms, e2el_ms)):
        if bound is not None:
            good &= measure(completed) <= bound
    return good


class Verdicts(NamedTuple):
    """Which requests keep the service level objectives of their class."""

    is_asked: bool          # the bounds of [slo] ask for something
    asked: np.ndarray       # bool (n,): there is a bound for the request
    good: np.ndarray        # bool (n,): it completed within its bounds

    def num_good(self, rows=slice(None)) -> int | None:
        """Count those among `rows` that are good; None where nothing was asked of any."""
        asked = self.asked[rows]
        return int(self.good[rows].sum()) if (asked.any() if len(asked) else self.is_asked) else None


def verdicts_of(run: Run, bounds) -> Verdicts:
    """Return what became of the service level objectives of each request.

    A request keeps the bounds of its SLO class, and those of [slo] where the class gives none. One of a class without
    any is good once it has completed.
    """
    requests, codes = run.workload.requests, run.workload.demands["slo_class"]
    good = requests["status"] == records.COMPLETED
    asked = np.zeros(len(requests), bool)
    classes = slo_classes.by_name(bounds.classes)
    names = (None, *run.workload.labels.get("slo_class", ()))
    by_code = [slo_classes.bounds_of(slo_classes.class_of(name, classes), bounds) for name in names]
    distinct = list(dict.fromkeys(by_code))
    group_of = np.array([distinct.index(each) for each in by_code])
    for group, own in enumerate(distinct):
        if any_given(own):
            chosen = np.ones(len(requests), bool) if len(distinct) == 1 else group_of[codes + 1] == group
            asked |= chosen
            completed = chosen & good
            good[completed] = meets(_only(requests, completed), own)
    return Verdicts(any_given(bounds), asked, good)


def latencies(completed: np.ndarray) -> dict[str, dict]:
    """Describe TTFT, TPOT, E2EL and queue time of completed requests.

    TPOT is that of requests of more than one token.
    """
    return {
        "ttft_ms": distribution(ttft_ms(completed)),
        "tpot_ms": distribution(tpot_ms(_only(completed, completed["output_tokens"] > 1))),
        "e2el_ms": distribution(e2el_ms(completed)),
        "queue_ms": distribution(queue_ms(completed)),
    }


def queue_ms(scheduled: np.ndarray) -> np.ndarray:
    """Return waiting queue to first scheduled; all requests must have come so far."""
    return (scheduled["scheduled_ns"] - scheduled["enqueued_ns"]) / 1e6


def not_completed(requests: np.ndarray) -> dict:
    """Describe what the requests that came and did not complete had by then.

    `streamed` counts those with a first token, `in_itl` those with a second one, whose gaps are in `itl_ms`;
    `output_tokens` is what all of them got. TTFT and queue time are those of the requests that came so far.
    """
    others = requests[(requests["status"] != records.COMPLETED) & records.has_come(requests["status"])]
    streamed = others[others["first_token_ns"] >= 0]
    return {
        "requests": len(others),
        "streamed": len(streamed),
        "in_itl": int((others["output_tokens"] > 1).sum()),
        "output_tokens": int(others["output_tokens"].sum(dtype=np.int64)),
        "ttft_ms": distribution(ttft_ms(streamed)),
        "queue_ms": distribution(queue_ms(others[others["scheduled_ns"] >= 0])),
    }


def kv_cache(replicas: np.ndarray) -> dict[str, float | int]:
    """Return blocks and their use, summed over replicas, null blocks not counted.

    peak_used_blocks sums the peaks that each replica had on its own. mean_usage is the share of blocks in use, averaged
    over the time during which iterations ran: sum of used blocks x duration over sum of blocks x duration.
    """
    capacity_block_ns = float((replicas["num_blocks"].astype(float) * replicas["busy_ns"]).sum())
    return {
        "num_blocks": int(replicas["num_blocks"].sum(dtype=np.int64)),
        "peak_used_blocks": int(replicas["peak_used_blocks"].sum(dtype=np.int64)),
        "mean_usage": float(replicas["used_block_ns"].sum()) / capacity_block_ns if capacity_block_ns else 0.0,
    }


def prefix_cache(replicas: np.ndarray) -> dict[str, float | int]:
    """Return prompt tokens looked up at first admissions, and those found."""
    query_tokens = int(replicas["prefix_query_tokens"].sum())
    hit_tokens = int(replicas["prefix_hit_tokens"].sum())
    return {"query_tokens": query_tokens, "hit_tokens": hit_tokens,
            "hit_rate": hit_tokens / query_tokens if query_tokens else 0.0}


def kv_tiers(run: Run) -> dict[str, list[dict]]:
    """Return what each level of the KV tiers did, summed over replicas.

    Empty where there are none.
    """
    if run.kv_tiers is None:
        return {}
    levels = [run.kv_tiers[run.kv_tiers["level"] == level] for level in np.unique(run.kv_tiers["level"])]
    names = [name for name in run.kv_tiers.dtype.names if name not in ("replica", "level", "waited_ns")]
    return {"kv_tiers": [
        {"level": int(rows["level"][0]), **{name: rows[name].sum().item() for name in names},
         "waited_s": int(rows["waited_ns"].sum()) / 1e9} for rows in levels]}


def breakdown(run: Run, column: str, verdicts: Verdicts, is_cut: np.ndarray) -> dict[str, dict]:
    """Return counts, throughputs and latencies for each value of a label column.

    `slo_attainment` is the share of injected requests, rejected ones among them, that completed within the bounds of
    their class, None without bounds.
    """
    names = run.workload.labels.get(column, ())
    if not len(names):
        return {}
    codes = run.workload.demands[column]
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], range(len(names) + 1))
    duration_s = duration_s_of(run.workload.requests, run.since_ns)
    rows = [order[starts[code]:starts[code + 1]] for code in range(len(names))]
    return {str(name): _part(run.workload.requests[own], duration_s, verdicts.num_good(own), is_cut[own])
            for name, own in zip(names, rows, strict=True)}


def _part(requests: np.ndarray, duration_s: float, num_good: int | None, is_cut: np.ndarray) -> dict:
    counts = count_by_status(requests, is_cut)
    return {
        "requests": counts,
        **throughput(requests, duration_s, num_good),
        "slo_attainment": None if num_good is None or not counts["injected"] else num_good / counts["injected"],
        **latencies(completed_of(requests)),
    }


def _replicas(rows: np.ndarray, shares: list[dict]) -> list[dict]:
    """Describe the replicas, of which each may have data-parallel ranks; these are rows of /replicas, too."""
    described = [_replica(rows[row:row + 1]) | share for row, share in enumerate(shares)]
    begins = [*np.flatnonzero(rows["rank"] == 0).tolist(), len(rows)]
    if len(begins) > len(rows):
        return described
    return [{"replica": number, "requests": int(rows["requests"][first:last].sum()),
             "completed": int(rows["completed"][first:last].sum()),
             "ranks": [{"rank": rank} | each for rank, each in enumerate(described[first:last])]}
            for number, (first, last) in enumerate(pairwise(begins))]


def _replica(row: np.ndarray) -> dict:
    """Describe one replica; `row` is a table of length one."""
    names = ("replica", "requests", "completed", "iterations", "preemptions", "prefill_tokens", "decode_tokens")
    return {
        **{name: int(row[name][0]) for name in names},
        "busy_s": int(row["busy_ns"][0]) / 1e9,
        "kv_cache": kv_cache(row),
        "prefix_cache": prefix_cache(row),
    }


def _only(requests: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the chosen requests, without a copy where that is all of them."""
    return requests if chosen.all() else requests[chosen]
