"""`lru`: evicts the chunk that was used by the request that left longest ago.

New chunks are last in the list. A request that leaves moves its chunks to the end, from the end of its text to the
beginning: the beginning, which others may still share, is evicted later. Reading moves nothing. Source: the behaviour
of vLLM 0.32.0, vllm/v1/kv_offload/cpu/policies/lru.py.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from simulator.kv.tiers.chunk_table cimport Chunk, ChunkTable


cdef class Lru(EvictionPolicy):
    """One list, by rank."""

    def __init__(self, ChunkTable table):
        self.takes_runs = True

    cdef int evict(self, int64_t count, int64_t guard) except -1 nogil:
        return self.evict_from(0, count, guard)

    cdef void closed(self, int32_t element, int use) noexcept nogil:
        self.table.move_back(element, 0)

    cdef void closed_all(self, const int32_t* elements, const uint8_t* uses, int32_t count) noexcept nogil:
        cdef const Chunk* chunks = self.table.chunks
        cdef int32_t i = count - 1, first, last
        while i >= 0:
            first = last = elements[i] if uses[i] else 0
            i -= 1
            while first != 0 and i >= 0 and uses[i] and elements[i] != 0 and chunks[last].next == elements[i]:
                last = elements[i]              # in the order that the request before left: move them together
                i -= 1
            if first != 0:
                self.table.move_all_back(first, last, 0)
