"""The numbers of summary.json, as pure functions of the finished tables.

Names and definitions are those of `vllm bench serve` (vLLM 0.32, vllm/benchmarks/serve.py, `calculate_metrics`):
totals, throughputs and latencies are those of completed requests, deviations are those of the population, and goodput
asks every given bound to hold. Queue time is vLLM's server-side one (vllm:request_queue_time_seconds): waiting queue to
first scheduled. Values of the other requests are under `not_completed`. Gaps between tokens are counted as
they happen, before the outcome of the request is known: `itl_ms` holds those of uncompleted requests too, and
`not_completed` has the number of such requests (`in_itl`).
"""
from itertools import pairwise

import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results import cluster
from simulator.results.cut import cut_notes, unsent_notes
from simulator.results.distributions import distribution, weighted_distribution_ms
from simulator.results.finish import cut_short
from simulator.results.journeys import journeys_of
from simulator.results.measured import measured_part
from simulator.results.overload import load_of
from simulator.results.rates import Rates
from simulator.results.served import turned_away, unserved
from simulator.results.slo import MEASURES, Verdicts, completed_of, latencies_ms, queue_ms, ttft_ms, verdicts_of
from simulator.results.traits import metrics_of

SCHEMA = 1
LABELS = ("slo_class", "tenant", "model")      # columns that have a breakdown
COUNTED = ("completed", "rejected", "dropped", "timed_out", "failed", "waiting", "running")


def summarise(run: Run, bounds, pools: tuple[cluster.PoolFacts, ...] = ()) -> dict:
    """Return the metrics of summary.json, from `complete` on.

    Where a set is empty its statistics are None; no value is NaN or infinite.

    Parameters
    ----------
    bounds : object with `ttft_ms`, `tpot_ms`, `e2el_ms`, each a float or None
        Service level objectives; None: no bound; and `classes`, tuple of SloClass with their own. The Struct of
        [slo] is one; also in the functions below.
    pools : of the experiment; empty: it has none.
    """
    whole, verdicts = run, verdicts_of(run, bounds)
    rates, run = Rates(whole, verdicts), measured_part(run)
    if whole.workload.measured is not None:
        verdicts = verdicts.of(whole.workload.measured)
    requests, journeys = run.workload.requests, journeys_of(run)
    lost, is_cut = unserved(run, journeys, whole), np.zeros(len(requests), bool)
    is_cut[cut_short(run.workload)] = True
    return {
        "complete": bool(run.complete),
        "requests": count_by_status(requests, is_cut) | not_sent(run.workload) | pool_capped(run.workload),
        "by_cause": cluster.by_cause(requests, journeys),
        "unserved": lost,
        "duration_s": rates.duration_s,
        "clock_s": int(run.clock_ns) / 1e9,
        **rates.of(),
        "slo_attainment": attainment(verdicts.num_good(), requests),
        **load_of(whole, journeys, run),
        **latencies(completed_of(requests)),
        **metrics_of(run),
        "itl_ms": weighted_distribution_ms(run.itl_ns),
        "not_completed": not_completed(requests),
        **cluster.gateway(journeys),
        "iterations": int(run.replicas["iterations"].sum()),
        **preemptions(run),
        "kv_cache": kv_cache(run.replicas),
        "prefix_cache": prefix_cache(run.replicas),
        **{f"by_{each}": breakdown(run, whole, each, verdicts, is_cut, rates) for each in LABELS},
        "fairness": cluster.fairness(whole, rates.events),
        **_by_machine(whole, pools, _of_pools(run, verdicts, pools)),
        "latency": dict(run.latency),
        "diagnosis": [*([lost] if lost else turned_away(run, journeys)), *cut_notes(whole), *run.diagnosis,
                      *rates.notes(), *unsent_notes(whole), *remarks(run.workload, is_cut)],
    }


def _by_machine(run: Run, pools: tuple[cluster.PoolFacts, ...], of_pools: list[dict]) -> dict:
    """Return time, requests and cost of pools, types of nodes and replicas; `of_pools` : latencies of each."""
    found = cluster.by_pool(run, pools)
    parts = {name: part | more for (name, part), more in zip(found.items(), of_pools, strict=True)}
    return {"by_pool": parts, "cost_by_node": cluster.cost_by_node(pools, parts),
            "replicas": described_replicas(run, cluster.replica_shares(run, pools))}


def _of_pools(run: Run, verdicts: Verdicts, pools: tuple[cluster.PoolFacts, ...]) -> list[dict]:
    """Return latencies of the measured requests that each pool had last; of two legs that is the pool for decode."""
    replicas, first, parts = run.workload.requests["replica"], 0, []
    for pool in pools:
        rows = np.flatnonzero((replicas >= first) & (replicas < first + pool.num_replicas))
        own, first = run.workload.requests[rows], first + pool.num_replicas
        ended = own["status"] > records.COMPLETED
        parts.append({"not_completed": int(ended.sum()), "slo_attainment": attainment(verdicts.num_good(rows), own),
                      **latencies(completed_of(own))})
    return parts


def preemptions(run: Run) -> dict:
    """Count preemptions, by cause where there are several, and failed allocations."""
    count = int(run.replicas["preemptions"].sum())
    counts = {"preemptions": count, "kv_allocation_failures": run.counts.get("kv_allocation_failures", 0)}
    if "given_way" not in run.counts:
        return counts
    places = run.counts["given_way"]
    return counts | {"preemptions_by_cause": {"places": places, "blocks": count - places}}


def remarks(workload, is_cut: np.ndarray) -> list[str]:
    """Return remarks on the numbers for the reader, one sentence each.

    is_cut : bool (n,), outputs cut by max_model_len; also in the functions below.
    """
    found = _ungrammatical(workload)
    for rows, where in ((np.flatnonzero(is_cut), ()), (cut_short(workload, records.KV_POOL), (
            "where the KV pool of their replica ends", "the engine lets no text grow beyond; give it more blocks"))):
        if len(rows):
            found.append(cut_remark(len(rows), workload.request_ids[rows[0]], *where))
    return found


def cut_remark(count: int, first: object, where: str = "at max_model_len",
               why: str = "prompt and whole output are longer") -> str:
    """Return a remark on outputs that a limit cut.

    first : id of the first of the requests.
    """
    what = "1 output was" if count == 1 else f"{count} outputs were"
    return f"{what} cut {where}, request {first} first: {why}; they count as completed, with the tokens they got"


def _ungrammatical(workload) -> list[str]:
    """Return how many requests failed without a token, since their grammar did not compile."""
    requests = workload.requests
    rows = np.flatnonzero((requests["status"] == records.FAILED) & (workload.demands["grammar"] >= 0)
                          & (requests["scheduled_ns"] < 0))
    if not len(rows):
        return []
    return [f"{len(rows)} request{'s' * (len(rows) > 1)} failed, {workload.request_ids[rows[0]]} first: the grammar of "
            "the answer did not compile"]


def count_by_status(requests: np.ndarray, is_cut: np.ndarray) -> dict[str, int]:
    """Count requests by outcome.

    Requests that had not arrived, or were not sent, are not injected; `length_capped` are completed ones that
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
    """Count requests that never arrived, where that can be."""
    never = workload.requests["status"] == records.NOT_SENT
    return {} if workload.script is None else {"not_sent": int(never.sum())}


def latencies(completed: np.ndarray) -> dict[str, dict]:
    """Describe TTFT, TPOT, E2EL and queue time of completed requests.

    TTFT is that of requests with an output token, TPOT that of requests of more than one.
    """
    return {key: distribution(latencies_ms(key, completed)) for key in MEASURES}


def attainment(num_good: int | None, requests: np.ndarray) -> float | None:
    """Return the share of the arrived requests that kept their bounds.

    None without bounds, or without requests.
    """
    came = int(records.has_come(requests["status"]).sum())
    return None if num_good is None or not came else num_good / came


def not_completed(requests: np.ndarray) -> dict:
    """Describe the arrived requests that did not complete.

    `streamed` counts those with a first token, `in_itl` those with a second one and thus gaps in `itl_ms`;
    `output_tokens` are the tokens of all. TTFT and queue time are of the requests that have them.
    """
    others = requests[(requests["status"] != records.COMPLETED) & records.has_come(requests["status"])]
    streamed = others[(others["first_token_ns"] >= 0) & (others["output_tokens"] > 0)]
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

    Both are sums over all replicas, of which one that ran no iteration has 0, so that no mean is above the peak.
    peak_used_blocks sums the peaks that each replica had on its own. mean_usage is the share of all blocks in use: the
    sum of the means that each replica had on its own, over the time during which its iterations ran, over all blocks.
    """
    ran = replicas[replicas["busy_ns"] > 0]
    mean_blocks = float((ran["used_block_ns"] / ran["busy_ns"]).sum())
    num_blocks = int(replicas["num_blocks"].sum(dtype=np.int64))
    return {
        "num_blocks": num_blocks,
        "peak_used_blocks": int(replicas["peak_used_blocks"].sum(dtype=np.int64)),
        "mean_usage": mean_blocks / num_blocks if num_blocks else 0.0,
    }


def prefix_cache(replicas: np.ndarray) -> dict[str, float | int]:
    """Return prompt tokens looked up at first admissions, and those found."""
    query_tokens = int(replicas["prefix_query_tokens"].sum())
    hit_tokens = int(replicas["prefix_hit_tokens"].sum())
    return {"query_tokens": query_tokens, "hit_tokens": hit_tokens,
            "hit_rate": hit_tokens / query_tokens if query_tokens else 0.0}


def breakdown(run: Run, whole: Run, column: str, verdicts: Verdicts, is_cut: np.ndarray, rates: Rates) -> dict:
    """Return counts, throughputs and latencies for each value of a label column.

    `slo_attainment` is the share of injected requests, rejected ones included, that completed within the bounds of
    their class, None without bounds.

    run : the measured part. whole : the run that `rates` were computed from.
    """
    names = run.workload.labels.get(column, ())
    if not len(names):
        return {}
    rows = _rows_by_code(run.workload.demands[column], len(names))
    others = rows if whole is run else _rows_by_code(whole.workload.demands[column], len(names))
    return {str(name): _part(run.workload.requests[own], rates.of(every), verdicts.num_good(own), is_cut[own])
            for name, own, every in zip(names, rows, others, strict=True)}


def _rows_by_code(codes: np.ndarray, number: int) -> list[np.ndarray]:
    """Return the rows with each of `number` codes."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], range(number + 1))
    return [order[starts[code]:starts[code + 1]] for code in range(number)]


def _part(requests: np.ndarray, rates: dict, num_good: int | None, is_cut: np.ndarray) -> dict:
    return {
        "requests": count_by_status(requests, is_cut),
        **rates,
        "slo_attainment": attainment(num_good, requests),
        **latencies(completed_of(requests)),
    }


def described_replicas(run: Run, shares: list[dict]) -> list[dict]:
    """Describe the replicas, each with its data-parallel ranks.

    Ranks are rows of /replicas, too.
    """
    rows = cluster.within_window(run)
    described = [_replica(rows[row:row + 1]) | {"kv_cache": kv_cache(run.replicas[row:row + 1])} | share
                 for row, share in enumerate(shares)]       # blocks in use are of the whole run, like its time
    begins = [*np.flatnonzero(rows["rank"] == 0).tolist(), len(rows)]
    if len(begins) > len(rows):
        return described
    return [{"replica": number, "requests": int(rows["requests"][first:last].sum()),
             "completed": int(rows["completed"][first:last].sum()),
             "ranks": [{"rank": rank} | each for rank, each in enumerate(described[first:last])]}
            for number, (first, last) in enumerate(pairwise(begins))]


def _replica(row: np.ndarray) -> dict:
    """Describe one replica; `row` is a table of length one, of the measured window."""
    names = ("replica", "requests", "completed", "iterations", "preemptions", "prefill_tokens", "decode_tokens")
    return {
        **{name: int(row[name][0]) for name in names},
        "busy_s": int(row["busy_ns"][0]) / 1e9,
        "kv_cache": kv_cache(row),
        "prefix_cache": prefix_cache(row),
    }
