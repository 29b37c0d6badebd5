"""Messages on replicas that cannot go on, and on requests that wait for ever."""
from libc.stdint cimport int32_t

from simulator.core.clock cimport NEVER_NS
from simulator.domain.request cimport WAITING
from simulator.engine.replica.replica cimport Replica
from simulator.scheduling.base cimport Scheduler

import numpy as np

REPORT_IT = "; that is a fault of the program, please report it as CONTRIBUTING.md says"


def diagnose(replicas, workload, has_stopped):
    """Return a message for each replica that cannot go on.

    has_stopped : the run was ended early, or events are left behind its horizon; then waiting requests are no fault.
    """
    cdef Replica replica
    messages = []
    for replica in replicas:
        if lost := replica.rank.scheduler.lost_rows():
            messages.append(f"replica {replica.index}: {len(lost)} request{'s' * (len(lost) > 1)} failed, "
                            f"{_name(workload, lost[0])} first: it ran alone, and no KV block was left for its next "
                            "token; give more blocks")
        if replica.rank.is_livelocked:
            messages.append(_describe_livelock(replica, workload))
        elif replica.is_out_of_time:
            messages.append(f"replica {replica.index}: an iteration would end after the last instant of the clock, "
                            "253 years; lower the prices of [latency]")
        elif replica.stands_still:
            messages.append(_describe_standing(replica))
        elif not has_stopped and replica.wake_ns == NEVER_NS and not replica.is_halted:
            if replica.rank.scheduler.num_running() > 0:
                messages.append(_describe_left_alone(replica, workload))
            elif replica.rank.scheduler.num_waiting() > 0:
                messages.append(_describe_stuck(replica, workload))
    return messages


def describe_standstill(num_events, clock_ns, kind):
    """Return a message on events that follow each other at one instant for ever.

    kind : EventKind of the next one; -1: there is none.
    """
    next_one = "no event comes next" if kind < 0 else f"the next event is of kind {kind}"
    return (f"the run stood still at {clock_ns / 1e9:,.9f} s: {num_events:,} events in a row moved neither the clock, "
            f"nor did a request come or leave, nor an iteration end; {next_one} (simulator/engine/fleet/events.pxd)"
            + REPORT_IT)


def pool_cuts(replicas, workload):
    """Return which requests' answers were to end at the limit of a KV pool.

    bool (n,); None: none.
    """
    cdef Replica replica
    found, parts = np.zeros(len(workload), bool), {}
    for replica in replicas:
        if replica.rank.delivery.pool_cuts is not None:
            cuts, indices = parts.setdefault(id(replica.rank.delivery.pool_cuts),
                                             (replica.rank.delivery.pool_cuts, []))
            indices.append(replica.index)
    for cuts, indices in parts.values():
        found |= np.isin(workload.requests["replica"], indices) & cuts[:len(workload)]
    return found if parts else None


def diagnose_gateways(workload, gave_up_ns, is_quiet):
    """Return a message, in a list, if requests wait or the run was given up.

    gave_up_ns : time before the end of the run in which nothing that matters happened; 0: nothing at all was left.
    is_quiet : nothing at all happened in that time; else replicas failed and were repaired.
    """
    requests = workload.requests
    rows = np.flatnonzero((requests["status"] == WAITING) & (requests["replica"] < 0))
    if not len(rows):
        num_waiting = int((requests["status"] == WAITING).sum())
        return [f"replicas: {num_waiting} requests wait at some that stand still" + _why_it_ended(gave_up_ns, is_quiet)
                ] if gave_up_ns else []
    return [f"gateway: {len(rows)} requests wait there for ever, request {workload.request_ids[rows[0]]} first: "
            "the replicas that could take them fail, or stay saturated or closed"
            + _why_it_ended(gave_up_ns, is_quiet)]


def _why_it_ended(gave_up_ns, is_quiet):
    if not gave_up_ns:
        return ""
    key, what = (("give_up_after_s", "nothing else happened") if is_quiet else
                 ("give_up_failing_after_s", "nothing but failures and repairs happened"))
    return f"; the run ended since {what} for {gave_up_ns / 1e9:,.9g} s, [cluster] {key}"


cdef object _describe_standing(Replica replica):
    cdef Scheduler scheduler = replica.rank.scheduler
    return (f"replica {replica.index}: stood still at {replica.still_ns / 1e9:,.9f} s: {scheduler.num_waiting()} "
            f"requests wait and {scheduler.num_running()} run, and {replica.num_still:,} turns in a row at that "
            "instant brought no tokens" + REPORT_IT)


cdef object _describe_livelock(Replica replica, workload):
    cdef Scheduler scheduler = replica.rank.scheduler
    if scheduler.waiting.size > 0 and replica.rank.is_outgrown:
        return (f"replica {replica.index}: livelock: request {_name(workload, scheduler.waiting.top())} "
                f"outgrows all {scheduler.kv.num_blocks} KV blocks and begins anew for ever, "
                f"{scheduler.waiting.size - 1} behind it wait: {scheduler.advice('too large')}")
    return (f"replica {replica.index}: livelock: {scheduler.waiting.size} waiting and {scheduler.num_running()} "
            f"running requests preempt each other for ever, and no token is sampled; {scheduler.kv.num_blocks} KV "
            f"blocks are too few: {scheduler.advice('livelock')}")


cdef object _describe_stuck(Replica replica, workload):
    cdef Scheduler scheduler = replica.rank.scheduler
    cdef int32_t row = scheduler.waiting.top() if scheduler.waiting.size > 0 else scheduler.held_rows()[0]
    cdef int32_t blocks, client = row % <int32_t>len(workload)      # a prefill leg has no output
    text = int(workload.requests["prompt_tokens"][client])
    text += int(workload.requests["output_tokens"][client]) if row == client else 0
    blocks = scheduler.kv.whole_blocks(text)
    if blocks > scheduler.kv.num_blocks:
        reason = (f"it needs {blocks} KV blocks for {text} tokens, the replica has {scheduler.kv.num_blocks}; "
                  f"{scheduler.advice('too large')}")
    elif scheduler.waiting.size == 0:
        reason = "the KV of its prompt has not arrived from another replica"
    elif scheduler.kv.free_blocks < scheduler.kv.whole_blocks(int(workload.requests["prompt_tokens"][client])):
        reason = (f"its prompt needs more KV blocks than the {scheduler.kv.free_blocks} that are free, and no replica "
                  "will free or read the others")
    elif scheduler.transfers is not None:
        reason = ("the KV of its prompt never arrives; or [kv_transfer] protocol = \"sglang\" keeps more tokens free, "
                  "num_reserved_decode_tokens, than the replica has")
    else:
        reason = scheduler.advice("passed over")
    return (f"replica {replica.index}: stuck: request {_name(workload, row)} and "
            f"{scheduler.num_waiting() - 1} behind it wait for ever: {reason}")


cdef object _describe_left_alone(Replica replica, workload):
    rows = replica.rank.scheduler.running_rows()
    return (f"replica {replica.index}: stuck: request {_name(workload, rows[0])} and {len(rows) - 1} more run and "
            f"get no tokens for ever: {replica.rank.scheduler.advice('left alone')}")


def _name(workload, row):
    """Return the id of a request, or of the request of a prefill leg."""
    return workload.request_ids[row % len(workload)]
