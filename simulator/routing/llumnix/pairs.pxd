"""Llumnix's pair selectors: pairs of a source and a destination."""
from libc.stdint cimport int8_t, int32_t
cimport cython

from simulator.routing.llumnix.candidates cimport Candidates


cdef enum PairSelector:             # PAIR_SELECTORS in pairs.pyx follows this order
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
