"""`lru` of vLLM from 0.33 on, with a rank for each request."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.tiers.lru cimport Lru


cdef struct Rank:               # of an element
    int64_t turn                # of the request that used it last; of a mark: its own
    int64_t order               # among the chunks of one request, the highest first


@cython.final
cdef class LruByRequest(Lru):
    cdef Rank* _ranks           # [_room] by element
    cdef int32_t _room
    cdef int64_t _turn          # drawn last

    # A request uses its first chunk: return its mark in the table.
    cdef int32_t open(self) except 0 nogil

    # The request uses a chunk that is there, for the first time. -> `order`: a number that is the higher, the further
    # back the chunk ends in its text. added(): a chunk was added for it.
    cdef void used(self, int32_t mark, int32_t element, int64_t order) noexcept nogil
    cdef int added(self, int32_t mark, int32_t element, int64_t order) except -1 nogil

    # A run was cut, and `other` is the new element behind.
    cdef int was_cut(self, int32_t element, int32_t other) except -1 nogil

    # The request has left, and its chunks are closed.
    cdef void close(self, int32_t mark) noexcept nogil

    cdef int _reserve(self) except -1 nogil
    cdef void _place(self, int32_t mark, int32_t element, int64_t order) noexcept nogil
