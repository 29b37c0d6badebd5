"""Measures of load: one number for a replica, lower is better."""
from libc.stdint cimport int32_t

from simulator.signals.load cimport effective_load, kv_usage
from simulator.signals.view cimport View


cdef enum Load:
    REQUESTS = 0                # in flight, on the gateway's own account
    TOKENS = 1                  # prompt tokens of the requests in flight
    EXPECTED = 2                # TOKENS plus predicted output tokens of the requests in flight
    WAITING = 3                 # requests in the queue; this and all below read the states of replicas
    RUNNING = 4
    KV = 5                      # share of the KV blocks in use
    EFFECTIVE = 6               # waiting + running + in flight
    REPORTED_TOKENS = 7         # texts of the requests that wait or run


cdef inline double load_of(Load kind, View view, int32_t replica) noexcept nogil:
    if kind == REQUESTS:
        return view.accounts[replica].in_flight
    if kind == TOKENS:
        return <double>view.accounts[replica].in_flight_tokens
    if kind == EXPECTED:
        return <double>(view.accounts[replica].in_flight_tokens + view.accounts[replica].expected_tokens)
    if kind == WAITING:
        return view.states[replica].waiting
    if kind == RUNNING:
        return view.states[replica].running
    if kind == KV:
        return kv_usage(view, replica)
    if kind == REPORTED_TOKENS:
        return <double>(view.states[replica].waiting_tokens + view.states[replica].running_tokens)
    return <double>effective_load(view, replica)


# The load with that name; registers with the view the fields that it reads.
cdef Load load_named(str name, View view) except *
