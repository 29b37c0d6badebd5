"""Numbers of summary.json about the gateway, tenants, pools and the share of each replica."""
from typing import NamedTuple

import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.distributions import distribution
from simulator.results.journeys import Columns
from simulator.results.paid_time import PaidTime, Rate
from simulator.results.uptime import SERVING, busy_in_ns, time_in_ns
from simulator.results.window_events import Events

# cause without a record
_UNNAMED = {"rejected": "engine", "dropped": "engine", "timed_out": "deadline", "failed": "engine"}


class PoolFacts(NamedTuple):
    """A pool's facts for the summary beside its numbers."""

    name: str
    num_replicas: int           # places in it; replicas are numbered pool by pool
    cost_per_hour: float        # of a replica, in any currency
    node: str = ""              # type of node, or accelerator, that it runs on; "": not known
    ranks: int = 1              # how many of the places are the ranks of one replica
    by_hour: tuple[float, ...] | None = None        # as in paid_time.Rate

    @property
    def rate(self) -> Rate:
        """The cost of a replica."""
        return Rate(self.cost_per_hour, self.by_hour)


def by_cause(requests: np.ndarray, journeys: Columns | None) -> dict[str, dict[str, int]]:
    """Count the requests that were not served, by status and cause.

    The counts of a status sum to that of `requests`; a status that no request has is absent.

    Parameters
    ----------
    journeys : from `journeys_of`; also in the functions below.
    """
    status, counts = requests["status"], {}
    for name, unnamed in _UNNAMED.items():
        chosen = status == records.STATUS_NAMES.index(name)
        if not chosen.any():
            continue
        causes = [int(chosen.sum())] if journeys is None else np.bincount(journeys["cause"][chosen]).tolist()
        counts[name] = {cause or unnamed: count
                        for cause, count in zip(records.CAUSE_NAMES, causes, strict=False) if count}
    return counts


def gateway(journeys: Columns | None) -> dict:
    """Describe the way to the replicas; empty where there are no journeys.

    `gateway_ms` is admission to dispatch, of requests that were sent to a replica, and not to
    another after a failure. `downtime_ms` describes requests that were interrupted.
    """
    if journeys is None:
        return {}
    sent = (journeys["dispatched_ns"] >= 0) & (journeys["retries"] == 0)
    sent = slice(None) if sent.all() else sent
    stopped_ns = journeys["downtime_ns"][journeys["downtime_ns"] > 0]
    return {
        "gateway_ms": distribution((journeys["dispatched_ns"][sent] - journeys["admitted_ns"][sent]) / 1e6),
        "downtime_ms": distribution(stopped_ns / 1e6),
        "retries": int(journeys["retries"].sum()),
        "migrations": int(journeys["migrations"].sum()),
    }


def fairness(run: Run, events: Events | None) -> float | None:
    """Return Jain's index of the output tokens of tenants; None without tenants.

    (sum x)^2 / (n sum x^2), 1 if all are 0, over tenants with any request; x are the output tokens of a tenant's
    completed requests, or those generated in the measured window, over tenants with a measured request or a
    token there. Source: Jain, Chiu, Hawe, "A quantitative measure of fairness", DEC-TR-301, 1984.

    events : events in the window; None: there is no window.
    """
    requests, codes = run.workload.requests, run.workload.demands["tenant"]
    came = (codes >= 0) & records.has_come(requests["status"])
    got = requests["output_tokens"] if events is None else events.output_tokens
    if events is not None and run.workload.measured is not None:
        came &= run.workload.measured | (got > 0)
    if not came.any():
        return None
    served = came & (requests["status"] == records.COMPLETED) if events is None else came
    tokens = np.bincount(codes[served], got[served], minlength=int(codes.max()) + 1)
    tokens = tokens[np.bincount(codes[came], minlength=len(tokens)) > 0]
    squares = float((tokens**2).sum())
    return float(tokens.sum())**2 / (len(tokens) * squares) if squares else 1.0


def replica_shares(run: Run, pools: tuple[PoolFacts, ...], queues: list[tuple[int, int]] | None = None) -> list[dict]:
    """Describe for each replica its time, its utilisation, its queue and its cost.

    It costs from the moment it is wanted until it is off. The queue is that of first admissions: from waiting queue to
    first scheduled, on the replica that a request was sent to last. Empty dicts for one replica without a
    gateway.

    queues : sum of waiting times in ns, and the most requests that waited at once, of each; None: of all requests.
    """
    if len(run.replicas) < 2 and run.journeys is None and not pools:
        return [{} for _ in run.replicas]
    up_ns, paid, busy_ns = time_in_ns(run, SERVING), _paid(run, pools), busy_in_ns(run)
    pool_of = [pool for pool in pools for _ in range(pool.num_replicas)]
    shares = []
    for replica, (total_wait_ns, peak) in enumerate(_queues(run) if queues is None else queues):
        up, busy = int(up_ns[replica]), int(busy_ns[replica])
        share = {"up_s": up / 1e9, "utilisation": _utilisation(busy, up),
                 "mean_waiting": total_wait_ns / up if up else 0.0, "peak_waiting": peak}
        if pool_of:
            pool = pool_of[replica]
            share |= {"pool": pool.name, "cost": paid.cost(slice(replica, replica + 1), pool.rate)}
        shares.append(share)
    return shares


def by_pool(run: Run, pools: tuple[PoolFacts, ...]) -> dict[str, dict]:
    """Add up the replicas of each pool."""
    parts, first, up_ns, paid, replicas = {}, 0, time_in_ns(run, SERVING), _paid(run, pools), within_window(run)
    for pool in pools:
        own = slice(first, first + pool.num_replicas)
        first += pool.num_replicas
        rows, up = replicas[own], int(up_ns[own].sum())
        busy = int(rows["busy_ns"].sum())
        parts[pool.name] = {
            "replicas": pool.num_replicas // pool.ranks,
            **{name: int(rows[name].sum()) for name in ("requests", "completed")},
            "up_s": up / 1e9, "utilisation": _utilisation(busy, up),
            "cost_per_hour": pool.cost_per_hour * pool.ranks, "cost": paid.cost(own, pool.rate)}
    return parts


def _paid(run: Run, pools: tuple[PoolFacts, ...]) -> PaidTime:
    return PaidTime(run, any(pool.by_hour for pool in pools))


def within_window(run: Run) -> np.ndarray:
    """Return `Run.replicas` within the measured window.

    Busy time, and the requests sent and completed, count only there; without a window nothing changes. A replica
    of a pool for prefill completes a request when it has computed the prompt.
    """
    if run.window is None:
        return run.replicas
    rows = run.replicas.copy()
    rows["busy_ns"], number = busy_in_ns(run), len(rows)
    for name, (replica, times_ns) in _visits(run).items():
        inside = (replica >= 0) & run.window.holds(times_ns)
        if name == "requests":          # a request that arrives at the window's beginning is sent in it
            inside |= (replica >= 0) & (times_ns == run.window.begin_ns) & (times_ns < run.window.end_ns)
        rows[name] = np.bincount(replica[inside], minlength=number)
    return rows


def _visits(run: Run) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the replicas that requests were sent to, and that completed them, each with the times."""
    requests, legs, moved = run.workload.requests, run.legs, run.transfers
    ended_ns = np.where(requests["status"] == records.COMPLETED, requests["completed_ns"], records.NEVER_NS)
    completed = requests["replica"], ended_ns
    if legs is not None:
        sent = legs["replica"], legs["sent_ns"]
    else:
        sent = requests["replica"], np.where(requests["enqueued_ns"] >= 0, requests["enqueued_ns"],
                                             requests["arrival_ns"])
    if moved is not None and legs is None:
        is_remote = moved["is_local"] == 0
        prefill = np.where(is_remote, moved["prefill_replica"], -1)
        sent = np.append(sent[0], prefill), np.append(sent[1], requests["arrival_ns"])
        completed = np.append(completed[0], prefill), np.append(ended_ns, moved["prefill_done_ns"])
    return {"requests": sent, "completed": completed}


def cost_by_node(pools: tuple[PoolFacts, ...], parts: dict[str, dict]) -> dict[str, dict[str, float]]:
    """Add up the cost of pools by type of node; per hour, with all places taken.

    parts : from `by_pool`.
    """
    costs = {}
    for pool in pools:
        total = costs.setdefault(pool.node, {"cost_per_hour": 0.0, "cost": 0.0})
        total["cost_per_hour"] += pool.cost_per_hour * pool.num_replicas
        total["cost"] += parts[pool.name]["cost"]
    return costs


def _utilisation(busy_ns: int, up_ns: int) -> float:
    """Return the busy share of a replica's time, at most 1; a removed replica may still end an iteration."""
    return min(busy_ns / up_ns, 1.0) if up_ns else 0.0


def _queues(run: Run) -> list[tuple[int, int]]:
    """Return for each replica the sum of waiting times in ns, and the most requests that waited at once."""
    requests = run.workload.requests
    rows = np.flatnonzero((requests["replica"] >= 0) & (requests["enqueued_ns"] >= 0))
    by_replica = requests["replica"][rows].astype(np.int64)     # then row: one array, sorted where it lies
    by_replica <<= 32
    by_replica |= rows
    del rows
    by_replica.sort()
    bounds = np.searchsorted(by_replica, np.arange(len(run.replicas) + 1) << 32)
    by_replica &= 0xFFFFFFFF
    return [_queue(run, by_replica[bounds[i]:bounds[i + 1]]) for i in range(len(run.replicas))]


def _queue(run: Run, rows: np.ndarray) -> tuple[int, int]:
    """Return the sum of waiting times, and the most that waited at once; departures at an instant count first.

    Both within the window, where there is one.
    """
    requests = run.workload.requests
    entered_ns, left_ns, status = (requests[name][rows] for name in ("enqueued_ns", "scheduled_ns", "status"))
    never = left_ns < 0
    left_ns[never & (status == records.WAITING)] = run.clock_ns
    gave_up = never & (status == records.TIMED_OUT)
    left_ns[gave_up] = run.workload.demands["deadline_ns"][rows[gave_up]]
    waited = left_ns >= entered_ns
    entered_ns, left_ns = entered_ns[waited], left_ns[waited]
    if run.window is not None:
        inside = (left_ns > run.window.begin_ns) & (entered_ns < run.window.end_ns)
        entered_ns, left_ns = run.window.clipped(entered_ns[inside]), run.window.clipped(left_ns[inside])
    total_ns = int((left_ns - entered_ns).sum())
    left_ns.sort()
    entered_ns.sort()
    gone = np.searchsorted(left_ns, entered_ns, side="right")
    waiting = np.arange(1, len(gone) + 1) - gone
    return total_ns, int(waiting.max(initial=0))
