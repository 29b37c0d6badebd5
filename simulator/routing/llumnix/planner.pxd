"""Llumnix's rescheduling policies, applied one after the other: the moves of a plan."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.routing.llumnix.candidates cimport Candidates
from simulator.routing.llumnix.filters cimport FilterChain
from simulator.routing.llumnix.pairs cimport PairRule, Pairs
from simulator.routing.rescheduling.base cimport Rescheduler, Selection


cdef enum:
    MAX_POLICIES = 8
    MAX_POLICY_METRICS = 4


cdef struct ReschedulingPolicy:
    FilterChain sources
    FilterChain destinations
    PairRule rule
    Selection selection             # of the requests that move
    int32_t metrics[MAX_POLICY_METRICS]
    int32_t num_metrics


@cython.final
cdef class MovePlanner:
    cdef Candidates _candidates
    cdef Pairs _pairs
    cdef ReschedulingPolicy _policies[MAX_POLICIES]
    cdef int32_t _num_policies
    cdef int32_t* _everyone         # [candidate] all candidates
    cdef object _owners

    # Replace the moves of `rescheduler`. A pair is left out if its exact reverse is there already; one source may give
    # to several destinations.
    cdef int plan(self, Rescheduler rescheduler, int64_t now_ns) except -1 nogil

    cdef void _find_pairs(self, const ReschedulingPolicy* policy) noexcept nogil
