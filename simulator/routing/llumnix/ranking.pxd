"""The best candidate by one metric that no request changes, kept as statuses and accounts change."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.draws cimport Draws
from simulator.core.tied_minima cimport TiedMinima
from simulator.routing.llumnix.candidates cimport Candidates
from simulator.routing.llumnix.dispatcher cimport Dispatcher, Pipeline


@cython.final
cdef class Ranking:
    cdef readonly bint can_tell     # the pipeline goes by one metric, and judges each candidate by itself
    cdef Dispatcher _dispatcher
    cdef Candidates _candidates
    cdef const Pipeline* _pipeline
    cdef const int32_t* _members    # [_num_members] borrowed from the dispatcher
    cdef int32_t _num_members
    cdef int8_t _infer_type
    cdef TiedMinima _keys           # the metric, less is better; infinity: a filter rejects it
    cdef TiedMinima _fallback_keys  # the metric in the second pass, used when the first passes none
    cdef int8_t* _is_member         # [candidate]
    cdef bint _drops_marked         # candidates marked for failover are out, and only they
    cdef int64_t _staleness_ns      # older statuses may be rejected
    cdef int64_t _oldest_ns         # oldest status that counts, of candidates that need no failover

    # Judge a candidate that has changed; judge all, as of candidates.now_ns.
    cdef void judge(self, int32_t i) noexcept nogil
    cdef void judge_all(self) noexcept nogil

    # Return the dispatcher's choice at candidates.now_ns, with the same draws; -1: no candidate passes.
    cdef int32_t pick(self, Draws draws) noexcept nogil

    cdef void _drop_stale(self) noexcept nogil
    cdef bint _may_go(self, int32_t i, bint is_fallback) noexcept nogil
    cdef void _read_filters(self, bint has_units) noexcept nogil
    cdef void _read_filter(self, int32_t f, bint has_units) noexcept nogil

    cdef double _key(self, int32_t i, bint is_fallback) noexcept nogil

    # Raise RuntimeError unless the dispatcher would choose among these candidates.
    cpdef int check(self) except -1 nogil
