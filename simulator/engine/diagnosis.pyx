"""Why a replica cannot go on, in words."""
from libc.stdint cimport int32_t

from simulator.core.clock cimport NEVER_NS
from simulator.domain.request cimport WAITING
from simulator.engine.replica.replica cimport Replica

import numpy as np


def diagnose(replicas, workload, has_stopped):
    """Return a message for each replica that cannot go on.

    has_stopped : the run ended before its time; what waits is no sign of a fault then.
    """
    cdef Replica replica
    messages = []
    for replica in replicas:
        waiting = replica.rank.scheduler.waiting.size
        if replica.rank.is_livelocked:
            running = replica.rank.scheduler.num_running()
            messages.append(
                f"replica {replica.index}: livelock: {waiting} waiting and {running} running requests preempt each "
                "other for ever, and no token is sampled; "
                f"{replica.rank.scheduler.kv.num_blocks} KV blocks are too few. "
                "Give more blocks, lower max_num_seqs, or leave scheduler_reserve_full_isl on")
        elif replica.is_out_of_time:
            messages.append(f"replica {replica.index}: an iteration would end after the last instant of the clock, "
                            "253 years; lower the prices of [latency]")
        elif waiting and not has_stopped and replica.wake_ns == NEVER_NS and not replica.is_halted:
            messages.append(_describe_stuck(replica, workload))
    return messages


def diagnose_gateways(workload):
    """Return a list with a message if requests wait at gateways."""
    requests = workload.requests
    rows = np.flatnonzero((requests["status"] == WAITING) & (requests["replica"] < 0))
    if not len(rows):
        return []
    return [f"gateway: {len(rows)} requests wait there for ever, request {workload.request_ids[rows[0]]} first: "
            "the replicas that could take them fail, or stay saturated or closed"]


cdef object _describe_stuck(Replica replica, workload):
    cdef int32_t row = replica.rank.scheduler.waiting.top()
    kv = replica.rank.scheduler.kv
    text = int(workload.requests["prompt_tokens"][row]) + int(workload.requests["output_tokens"][row])
    blocks = -(-text // kv.block_size)
    reason = "needs more tokens in one iteration than the budget allows: raise max_num_batched_tokens"
    if blocks > kv.num_blocks:
        reason = (f"needs {blocks} KV blocks for {text} tokens, the replica has {kv.num_blocks}; vLLM refuses to "
                  "start with such a max_model_len: lower it or give more blocks")
    return (f"replica {replica.index}: stuck: request {workload.request_ids[row]} and "
            f"{replica.rank.scheduler.waiting.size - 1} behind it wait for ever: it {reason}")
