"""Llumnix's rescheduling policies: pairs of a source and a destination, and the moves of a plan."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.routing.llumnix.candidates cimport Candidates
from simulator.routing.llumnix.filters cimport FilterChain
from simulator.routing.rescheduling.base cimport Rescheduler, Selection


cdef enum PairSelector:             # PAIR_SELECTORS in planner.pyx follows this order
    METRIC_BALANCE                  # fullest to emptiest, second to second, .. as long as it goes downhill
    AGGREGATE                       # emptiest to fullest, .. as long as it goes uphill: to empty the emptiest
    ROUND_ROBIN                     # sources in order, destinations cyclically
    BINPACKING_MITIGATION           # the slowest to the slowest destination
    BINPACKING_CONSOLIDATION        # the fastest to the slowest destination: to empty the fastest


cdef struct PairRule:
    int32_t selector                # PairSelector
    int32_t metric                  # of METRIC_BALANCE and AGGREGATE
    float least_difference          # METRIC_BALANCE: closer pairs are dropped; <= 0: none is
    int8_t by_unit                  # METRIC_BALANCE: each unit by itself; those without one stay as they are
    int8_t only_strict              # METRIC_BALANCE, AGGREGATE: stop where it no longer goes downhill, or uphill


@cython.final
cdef class Pairs:
    cdef Candidates _candidates
    cdef int32_t* sources           # [num_sources] candidates that may give; filled by the caller of `pair`
    cdef int32_t* destinations
    cdef int32_t num_sources
    cdef int32_t num_destinations
    cdef int32_t* first             # [count] result: first[i] gives to second[i]
    cdef int32_t* second
    cdef int32_t count
    cdef object _arrays

    # Find pairs among `sources` and `destinations`, and reorder both arrays.
    cdef void pair(self, const PairRule* rule) noexcept nogil

    cdef void _add(self, int32_t source, int32_t destination) noexcept nogil
    cdef void _balance(self, const PairRule* rule) noexcept nogil
    cdef void _round_robin(self) noexcept nogil
    cdef void _pack(self, int32_t selector) noexcept nogil
    cdef int32_t _unit(self, int32_t i, bint by_unit) noexcept nogil
    cdef bint _is_ahead(self, const PairRule* rule, bint is_ascending, int32_t a, int32_t b) noexcept nogil
    cdef void _sort(self, const PairRule* rule, bint is_ascending, int32_t* listed, int32_t count) noexcept nogil


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
