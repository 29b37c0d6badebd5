"""Reported numbers of a replica, by name, for comparisons that a user states."""
from libc.stdint cimport int32_t

from simulator.signals.load cimport kv_usage
from simulator.signals.view cimport View


cdef enum Attribute:
    IN_FLIGHT = 0               # requests, on the gateway's own account
    IN_FLIGHT_TOKENS = 1        # their prompt tokens
    WAITING = 2                 # requests in the queue; this and all below are reported by the replica
    RUNNING = 3
    WAITING_PREFILL = 4         # prompt tokens that waiting requests still compute
    RUNNING_PREFILL = 5
    PREEMPTIONS = 6             # so far
    KV_USAGE = 7                # share of the KV blocks in use
    NUM_BLOCKS = 8              # KV blocks in total
    HIT_RATE = 9                # share of prompt tokens found in the prefix cache, so far
    MAX_RUNNING = 10            # requests that run at once, at most


cdef inline double attribute_of(Attribute kind, View view, int32_t replica) noexcept nogil:
    if kind == IN_FLIGHT:
        return view.accounts[replica].in_flight
    if kind == IN_FLIGHT_TOKENS:
        return <double>view.accounts[replica].in_flight_tokens
    if kind == WAITING:
        return view.states[replica].waiting
    if kind == RUNNING:
        return view.states[replica].running
    if kind == WAITING_PREFILL:
        return <double>view.states[replica].waiting_prefill_tokens
    if kind == RUNNING_PREFILL:
        return <double>view.states[replica].running_prefill_tokens
    if kind == PREEMPTIONS:
        return <double>view.states[replica].preemptions
    if kind == KV_USAGE:
        return kv_usage(view, replica)
    if kind == NUM_BLOCKS:
        return view.states[replica].num_blocks
    if kind == HIT_RATE:
        return view.states[replica].cache_hit_rate
    return view.states[replica].max_running


# Whether a replica has reported ever; without a report it has no attributes but those of the gateway's own account.
cdef inline bint has_reported(View view, int32_t replica) noexcept nogil:
    return view.states[replica].num_blocks > 0


# The attribute with that name; registers with the view the fields that it reads.
cdef Attribute attribute_named(str name, View view) except *
