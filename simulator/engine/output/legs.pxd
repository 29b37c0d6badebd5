"""The legs of requests: each stay of a request at a replica, for requests that visit several."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.journey cimport Leg


@cython.final
cdef class LegBook:
    cdef Leg* _legs             # [size], in order of their begin; borrowed from _rows
    cdef object _rows           # structured array, records.LEG
    cdef readonly int64_t size
    cdef int64_t _room          # legs that fit before the array must grow
    cdef int64_t* _last         # [request] its last leg; -1: none
    cdef int64_t _num_requests

    cdef int _grow(self) except -1 nogil

    # A request is sent to a replica with a LegRole: a leg begins.
    cdef int sent(self, int32_t row, int32_t replica, int8_t role, int64_t now_ns) except -1 nogil

    # The request reaches the waiting queue there; is first scheduled, with `cached_tokens` of its text found in the KV
    # cache, and `external_tokens` loaded from a tier.
    cdef void enqueued(self, int32_t row, int64_t now_ns) noexcept nogil
    cdef void scheduled(self, int32_t row, int32_t cached_tokens, int32_t external_tokens,
                        int64_t now_ns) noexcept nogil

    # The request leaves the replica, with a LegEnd.
    cdef void ended(self, int32_t row, int8_t how, int64_t now_ns) noexcept nogil
