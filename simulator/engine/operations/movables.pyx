"""Requests of a replica that could move, and destinations for them."""
from simulator.domain.replica_state cimport ReplicaState
from simulator.engine.fleet.live_view cimport LiveView
from simulator.engine.replica.observation cimport observe
from simulator.scheduling.base cimport Scheduler, Sequence

import numpy as np

from simulator.routing.rescheduling.base import MOVABLE


cdef tuple list_movables(Replica replica, dict moving):
    cdef Scheduler scheduler = replica.rank.scheduler
    cdef const Sequence* sequence
    cdef int32_t slot = scheduler.first_running(), row, outputs
    requests, slots = [], []
    while slot >= 0:
        sequence = scheduler.sequence(slot)
        outputs = (scheduler.outputs(slot) if sequence.is_member
                   else replica.rank.request(sequence.row).output_tokens)
        settled = outputs if sequence.is_member or sequence.is_decoding else 0
        requests.append((sequence.row, sequence.prompt_tokens + outputs, settled, True, sequence.row in moving))
        slots.append(slot)
        slot = scheduler.next_running(slot)
    for row in scheduler.waiting.rows():
        outputs = replica.rank.request(row).output_tokens
        requests.append((row, replica.rank.request(row).prompt_tokens + outputs, outputs, False, row in moving))
        slots.append(-1)
    return np.array(requests, MOVABLE), slots


cdef int32_t freest_replica(Fleet fleet, int32_t source, full, int64_t now_ns) except -2:
    cdef LiveView view = <LiveView>fleet.entries[source].view
    cdef ReplicaState state
    cdef int32_t i, index, best = -1
    cdef int64_t most_tokens = -1, tokens
    cdef Replica replica
    for i in range(view.num_replicas):
        index = view.accounts[i].replica
        replica = fleet.replicas[index]
        if index == source or index in full or not view.accounts[i].is_routable or replica.is_halted:
            continue
        observe(replica, now_ns, &state)
        tokens = <int64_t>(state.num_blocks - state.used_blocks) * state.block_size
        if tokens > most_tokens:
            best, most_tokens = index, tokens
    return best
