"""`free_queue`: evicts the chunk that was written, or last read, longest ago.

The chunks of a copy are evicted from the last to the first, like blocks that a request frees; the end of a request has
no effect. Source: the behaviour of vLLM 0.32.0, vllm/v1/simple_kv_offload/manager.py: its host memory is a block pool
like that of the accelerator.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
cimport cython

from simulator.kv.tiers.chunk_table cimport ChunkTable
from simulator.kv.tiers.eviction cimport EvictionPolicy


@cython.final
cdef class FreeQueue(EvictionPolicy):
    """One list, by the end of copies."""

    def __init__(self, ChunkTable table):
        self.hears_of_copies = True

    cdef int evict(self, int64_t count, int64_t guard) except -1 nogil:
        return self.evict_from(0, count, guard)

    cdef void copied(self, int32_t element) noexcept nogil:
        self.table.move_back(element, 0)

    cdef void closed_all(self, const int32_t* elements, const uint8_t* uses, int32_t count) noexcept nogil:
        pass
