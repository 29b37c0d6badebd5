"""Host memory of one replica to which BLIS up to v0.6.9 moves blocks."""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.kv.mirror cimport Mirror


cdef struct Moved:              # a block in host memory
    uint64_t hash               # 0: there is none under this index
    int64_t since_ns


@cython.final
cdef class HostOffload(Mirror):
    cdef Moved* _moved          # [_room] by the index that the block had in the KV cache
    cdef int32_t _room
    cdef int32_t _num_moved     # blocks in host memory
    cdef int64_t _charged       # against the capacity: blocks moved here less blocks given back, replaced ones included
    cdef int64_t _capacity
    cdef double _threshold      # blocks are moved while a larger share of the KV cache is in use
    cdef int64_t _reload_ns     # of a block
    cdef int64_t _waiting_ns    # reloads that no iteration has waited for yet
    cdef int64_t _now_ns        # when the last iteration began
    cdef double _block_bytes
    cdef readonly int64_t moved         # blocks, so far
    cdef readonly int64_t replaced      # by others moved here under the same index
    cdef readonly int64_t reloaded
    cdef readonly int64_t thrashed      # reloaded less than THRASH_NS after they were moved here
