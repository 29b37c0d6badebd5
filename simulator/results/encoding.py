"""Encode pools: /encode_jobs, their part of the summary, rows of the Chrome trace."""
import json
from collections.abc import Iterable

import numpy as np

from simulator.domain import records
from simulator.domain.encoding import Encoding
from simulator.domain.run import Run
from simulator.results.distributions import distribution
from simulator.results.paid_time import NS_PER_HOUR
from simulator.results.trace_window import TraceWindow
from simulator.results.uptime import measured_ns

_BATCH = ('{"ph":"X","cat":"encode","name":"encode","pid":%d,"tid":0,"ts":%d.%03d,"dur":%d.%03d,"args":{"items":%d,'
          '"embeddings":%d,"hits":%d}}')
_SENT = '{"ph":"X","cat":"encode","name":%s,"pid":%d,"tid":1,"ts":%d.%03d,"dur":%d.%03d,"args":{"embeddings":%d}}'
_NAMES = ('{"ph":"M","name":"process_name","pid":%d,"args":{"name":"encode replica %d"}},\n'
          '{"ph":"M","name":"process_sort_index","pid":%d,"args":{"sort_index":%d}},\n'
          '{"ph":"M","name":"thread_name","pid":%d,"tid":0,"args":{"name":"batches"}},\n'
          '{"ph":"M","name":"thread_name","pid":%d,"tid":1,"args":{"name":"transfers"}}')


def metrics_of(done: Encoding, run: Run, whole: Run) -> dict:
    """Return the part of the summary about encode pools.

    done : their results for the requests of `run`, the measured part of the `whole` run.

    jobs : items of measured requests that reached a replica; completed : those with embeddings at the replica of the
        prompt; hits : encoded items found in the cache, or computed for another item of the batch; embeddings : number
        computed; bytes : of the embeddings of completed ones.
    wait_ms : of a request, from the arrival of its first item at a replica until its last embeddings have arrived; it
        is part of gateway_ms.
    queue_ms, transfer_ms : of an item, until its batch begins; from the batch's end until the embeddings have arrived.
    ttft_share : share of the TTFT of completed requests with items that is wait_ms, summed over them.
    by_pool, replicas : over the whole run, or the measured window, of all requests; a replica costs from its
        beginning to its end.
    """
    jobs, pool_of, busy_ns, lasts_ns = done.jobs, _pool_of(done), _busy_ns(whole), measured_ns(whole)
    started, came = jobs["start_ns"] >= 0, jobs["transferred_ns"] >= 0
    sizes = np.array([pool.embedding_bytes for pool in done.pools])
    requests = run.workload.requests
    wait_ns = _waits_ns(jobs, len(requests))
    counts = (requests["status"] == records.COMPLETED) & (wait_ns >= 0)
    ttft_ns = requests["first_token_ns"][counts] - requests["arrival_ns"][counts]
    return {"encode": {
        "jobs": len(jobs), "completed": int(came.sum()), "hits": int(jobs["hit"][started].sum()),
        "embeddings": int(jobs["embeddings"][(jobs["end_ns"] >= 0) & (jobs["hit"] == 0)].sum(dtype=np.int64)),
        "bytes": round(float((jobs["embeddings"][came] * sizes[pool_of[jobs["replica"][came]]]).sum())),
        "wait_ms": distribution(wait_ns[wait_ns >= 0] / 1e6),
        "queue_ms": distribution((jobs["start_ns"] - jobs["queued_ns"])[started] / 1e6),
        "transfer_ms": distribution((jobs["transferred_ns"] - jobs["end_ns"])[came] / 1e6),
        "ttft_share": float(wait_ns[counts].sum() / ttft_ns.sum()) if ttft_ns.sum() > 0 else None,
        "by_pool": _by_pool(done, pool_of, busy_ns, lasts_ns),
        "replicas": [{"replica": i, "pool": done.pools[pool].name, "batches": int(done.batches[i]),
                      "busy_s": int(busy_ns[i]) / 1e9, "utilisation": _share(int(busy_ns[i]), lasts_ns)}
                     for i, pool in enumerate(pool_of.tolist())]}}


def with_costs(costs: dict[str, dict[str, float]], run: Run) -> dict[str, dict[str, float]]:
    """Return the cost of all pools by type of node; `costs` : of all but encode pools."""
    costs = {node: dict(cost) for node, cost in costs.items()}
    for pool in run.records["encode"].pools:
        total = costs.setdefault(pool.node, {"cost_per_hour": 0.0, "cost": 0.0})
        total["cost_per_hour"] += pool.cost_per_hour * pool.replicas
        total["cost"] += pool.cost_per_hour * pool.replicas * measured_ns(run) / NS_PER_HOUR
    return costs


def encode_events(run: Run, window: TraceWindow) -> Iterable[str]:
    """Yield the batches and transfers of each encode replica.

    A replica is a process behind those that compute tokens. A transfer is shown from its first byte until it has
    arrived: on a link with latency the next one begins before that.
    """
    done, first = run.records["encode"], len(run.replicas)
    jobs = done.jobs
    encoded = jobs[jobs["end_ns"] >= 0]
    order = np.lexsort((encoded["start_ns"], encoded["replica"]))
    keys = encoded[["replica", "start_ns", "end_ns"]][order]
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else []
    for rows in np.split(encoded[order], begins[1:]) if len(keys) else ():
        start_ns, end_ns = int(rows["start_ns"][0]), int(rows["end_ns"][0])
        if window.has(start_ns):
            yield _BATCH % (first + rows["replica"][0], *divmod(start_ns, 1000), *divmod(end_ns - start_ns, 1000),
                            len(rows), rows["embeddings"][rows["hit"] == 0].sum(), rows["hit"].sum())
    for job in jobs[jobs["transferred_ns"] >= 0]:
        sent_ns, took_ns = int(job["sent_ns"]), int(job["transferred_ns"] - job["sent_ns"])
        if window.has(sent_ns):
            name = json.dumps(f"request {run.workload.request_ids[job['request']]}, item {job['item']}")
            yield _SENT % (name, first + job["replica"], *divmod(sent_ns, 1000), *divmod(took_ns, 1000),
                           job["embeddings"])
    for i in range(len(done.busy_ns)):
        yield _NAMES % (first + i, i, *[first + i] * 4)


def _pool_of(done: Encoding) -> np.ndarray:
    """Return the pool of each replica, int64 (replicas,)."""
    return np.repeat(np.arange(len(done.pools)), [pool.replicas for pool in done.pools])


def _waits_ns(jobs: np.ndarray, num_requests: int) -> np.ndarray:
    """Return how long each request waited for its items, int64 (requests,); -1: none, or not all have arrived."""
    first_ns = np.full(num_requests, np.iinfo(np.int64).max)
    last_ns = np.full(num_requests, -1)
    np.minimum.at(first_ns, jobs["request"], jobs["queued_ns"])
    np.maximum.at(last_ns, jobs["request"], jobs["transferred_ns"])
    last_ns[jobs["request"][jobs["transferred_ns"] < 0]] = -1
    return np.where(last_ns >= 0, last_ns - first_ns, -1)


def _busy_ns(run: Run) -> np.ndarray:
    """Return how long each replica encoded, int64, within the window where there is one."""
    done = run.records["encode"]
    if run.window is None:
        return done.busy_ns
    jobs = done.jobs[done.jobs["end_ns"] >= 0]
    batches = np.unique(jobs[["replica", "start_ns", "end_ns"]])
    inside_ns = run.window.clipped(batches["end_ns"]) - run.window.clipped(batches["start_ns"])
    return np.bincount(batches["replica"], inside_ns, len(done.busy_ns)).astype(np.int64)


def _by_pool(done: Encoding, pool_of: np.ndarray, busy_of: np.ndarray, lasts_ns: int) -> dict[str, dict]:
    """Add up the replicas of each pool."""
    parts = {}
    for number, pool in enumerate(done.pools):
        own = pool_of == number
        busy_ns = int(busy_of[own].sum())
        parts[pool.name] = {
            "replicas": pool.replicas, "batches": int(done.batches[own].sum()), "busy_s": busy_ns / 1e9,
            "utilisation": _share(busy_ns, pool.replicas * lasts_ns),
            "cost_per_hour": pool.cost_per_hour,
            "cost": pool.cost_per_hour * pool.replicas * lasts_ns / NS_PER_HOUR}
    return parts


def _share(busy_ns: int, of_ns: int) -> float:
    """Return the share of its time that a replica was busy; a batch may end after the end of the run."""
    return min(busy_ns / of_ns, 1.0) if of_ns else 0.0


def sentence(pools: dict) -> str:
    """Return the number of encoded items, and their share of the TTFT."""
    share = "" if pools["ttft_share"] is None else f", {pools['ttft_share']:.1%} of the TTFT of their requests"
    busy = ", ".join(f"{name} {pool['utilisation']:.1%} busy" for name, pool in pools["by_pool"].items())
    return f"{pools['jobs']:,} item{'s' * (pools['jobs'] != 1)}, {pools['hits']:,} of them found{share}; {busy}"
