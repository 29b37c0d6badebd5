"""Policies that rank by a request's gain per token of its text; see by_gain.pyx."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.scheduling.lane cimport came_before
from simulator.scheduling.ranked cimport Ranked
from simulator.scheduling.texts cimport MOST_SHELVES, Part, Texts

cdef enum:
    MOST_BEST = 4               # waiting requests remembered: the best one, and its successors
    MOST_SEEDS = 8


cdef struct Best:               # a waiting request
    int32_t row
    double standing


cdef class ByGain(Ranked):
    cdef Texts _texts
    cdef double _running_weight         # factor of the gain of a running request; set by the policy
    cdef bint _is_tight                 # rank by gain in this batch, else by arrival; set before each batch
    cdef double[MOST_SHELVES] _most     # [shelf] upper bound of the gain of a request on it
    cdef double[MOST_SHELVES] _ahead    # [shelf] best possible standing of a request on it
    cdef Best[MOST_BEST] _best          # [_num_best] the best waiting requests, in order, at `_found_ns`
    cdef int32_t _num_best
    cdef int64_t _found_ns
    cdef int32_t[MOST_SEEDS] _seeds     # rows that were among _best before
    cdef int64_t _num_seeds

    # The gain now of serving a request with this number of output tokens, at least 0. Overridden by the policy.
    cdef double _gain_of(self, double tokens, int64_t arrival_ns) noexcept nogil

    # An upper bound of the gain, for at least `tokens` and arrival in [earliest_ns, latest_ns]. Overridden by the
    # policy.
    cdef double _most_of(self, int32_t tokens, int64_t earliest_ns, int64_t latest_ns) noexcept nogil

    @cython.final
    cdef inline bint _goes_before(self, int32_t row, double standing, int32_t place) noexcept nogil:
        cdef const Best* other = &self._best[place]
        return standing < other.standing or (
            standing == other.standing and came_before(self._requests, self._demands, row, other.row))

    @cython.final
    cdef inline bint _may_be_best(self, double standing) noexcept nogil:
        return self._num_best < MOST_BEST or standing <= self._best[MOST_BEST - 1].standing

    @cython.final
    cdef void _take_changes(self) noexcept nogil

    @cython.final
    cdef void _offer(self, int32_t row, double standing) noexcept nogil

    @cython.final
    cdef void _seed(self, int32_t row) noexcept nogil

    @cython.final
    cdef void _look(self) noexcept nogil

    @cython.final
    cdef void _look_at_shelf(self, int32_t i) noexcept nogil

    @cython.final
    cdef void _look_at(self, const Part* part, double most) noexcept nogil
