"""Observations as arrays: replicas and a request as a gateway sees them, pools as an autoscaler sees them.

Columns are in natural units, not normalised. Reports of replicas have the age that the experiment gives them.
"""
import numpy as np

from simulator.domain import records
from simulator.gym.deciding import Decision

_NS = 1e-9
# fields of records.REPLICA_STATE, and of records.REPLICA_ACCOUNT
_REPORTED = ("waiting", "running", "loading", "waiting_tokens", "running_tokens", "waiting_prefill_tokens",
             "running_prefill_tokens", "used_blocks", "num_blocks", "preemptions", "cache_hit_rate", "is_silent")
_ACCOUNTED = ("is_routable", "in_flight", "in_flight_tokens", "expected_tokens", "pool")
REPLICA_COLUMNS = (*_ACCOUNTED, *_REPORTED, "iteration_s", "age_s", "cached_blocks")
REQUEST_COLUMNS = ("prompt_tokens", "max_tokens", "expected_tokens", "priority", "tenant", "slo_class", "adapter",
                   "waited_s", "until_deadline_s", "since_last_s")
POOL_COLUMNS = ("serving", "starting", "room", "removable", "cost_per_hour", "waiting", "running", "in_flight",
                "in_flight_tokens", "used_frac", "age_s")
MODEL_COLUMNS = ("queued", "arrived", "ended", "good", "since_last_s")
_DECLARED = ("max_tokens", "priority", "expected_tokens", "deadline_ns")


def _places(dtype: np.dtype, names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(dtype.names.index(name) for name in names)


_ARRIVAL, _PROMPT = _places(records.REQUEST, ("arrival_ns", "prompt_tokens"))
_PLACES = _places(records.DEMAND, _DECLARED)
_DEADLINE = _PLACES[-1]
_SHOWN = _places(records.DEMAND, REQUEST_COLUMNS[1:7])
_LABELS = tuple((name, *_places(records.DEMAND, (name,)))
                for name in ("tenant", "session", "slo_class", "model", "adapter"))
MOST = float(np.finfo(np.float32).max)


def replicas_of(decision: Decision) -> np.ndarray:
    """Return `REPLICA_COLUMNS` of all replicas, float32 (replicas, columns).

    age_s is the time since the report. cached_blocks: -1 where the agent does not see caches.
    """
    states, accounts = decision.states, decision.accounts
    found = np.empty((len(states), len(REPLICA_COLUMNS)), np.float32)
    for column, name in enumerate(_ACCOUNTED):
        found[:, column] = accounts[name]
    for column, name in enumerate(_REPORTED, len(_ACCOUNTED)):
        found[:, column] = states[name]
    found[:, -3] = states["iteration_ns"] * _NS
    found[:, -2] = (decision.now_ns - states["time_ns"]) * _NS
    found[:, -1] = decision.cached_blocks if len(decision.cached_blocks) else -1
    return found


def facts_of(workload, row: int) -> dict:
    """Return the facts of a request that its client declares; "": no such label."""
    request, demand = workload.requests[row].item(), workload.demands[row].item()
    facts = {"row": row, "request_id": str(workload.request_ids[row]), "arrival_ns": request[_ARRIVAL],
             "prompt_tokens": request[_PROMPT]}
    facts |= zip(_DECLARED, (demand[place] for place in _PLACES), strict=True)
    for name, place in _LABELS:
        code, names = demand[place], workload.labels.get(name)
        facts[name] = "" if code < 0 else str(code if names is None else names[code])
    return facts


def request_of(decision: Decision, workload, last_ns: int) -> np.ndarray:
    """Return `REQUEST_COLUMNS` of the request that is decided on, float32.

    Labels are codes; -1: none. until_deadline_s is -1 without a deadline.
    """
    request, demand = workload.requests[decision.row].item(), workload.demands[decision.row].item()
    deadline_ns = demand[_DEADLINE]
    left_s = -1.0 if deadline_ns == records.NEVER_NS else (deadline_ns - decision.now_ns) * _NS
    waited_s, since_s = (decision.now_ns - request[_ARRIVAL]) * _NS, (decision.now_ns - last_ns) * _NS
    return np.array([request[_PROMPT], *(demand[place] for place in _SHOWN), waited_s, left_s, since_s], np.float32)


def pools_of(decision: Decision) -> np.ndarray:
    """Return `POOL_COLUMNS` of an autoscaler's pools, float32 (pools, columns).

    Sums over the replicas that serve; used_frac is the used share of their KV blocks, age_s the age of the oldest
    report.
    """
    found = []
    for pool in decision.scaling.variants:
        states, accounts = pool.states, pool.accounts
        blocks = max(int(states["num_blocks"].sum()), 1)
        age_s = (decision.now_ns - int(states["time_ns"].min())) * _NS if len(states) else 0.0
        found.append((pool.serving, pool.starting, pool.room, pool.removable, pool.cost_per_hour,
                      states["waiting"].sum(), states["running"].sum(), accounts["in_flight"].sum(),
                      accounts["in_flight_tokens"].sum(), states["used_blocks"].sum() / blocks, age_s))
    return np.array(found, np.float32)
