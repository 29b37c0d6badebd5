"""Layers with attention within a chunk: Llama 4's local attention."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.hybrid.layer_kind cimport LayerKind, Search, Table


@cython.final
cdef class ChunkedAttention(LayerKind):
    """A hit begins with the chunk in which the text continues; blocks before are null.

    chunk : tokens.
    most_tokens : the most tokens in a chunk and in iterations in flight, for a check that a text fits whole.
    """

    cdef int64_t _chunk

    def __cinit__(self, int32_t block_size, int32_t unit, groups, int64_t chunk, int64_t most_tokens):
        self._chunk, self.is_local = chunk, True
        self.most_blocks = <int32_t>((most_tokens + block_size - 1) // block_size)

    cdef int64_t outdated(self, int64_t tokens) noexcept nogil:
        return tokens // self._chunk * self._chunk

    cdef int64_t steady_until(self, const Table* table, int64_t computed, int64_t settled) noexcept nogil:
        if table.begin != self.outdated(settled) // self.block_size:
            return 0
        return self.outdated(settled) + self._chunk

    cdef int64_t find(self, Search search, int64_t most, bint drop) noexcept nogil:
        cdef int32_t first = <int32_t>(self.outdated(most) // self.block_size), i = first
        cdef int32_t end = <int32_t>(min(most, search.reach) // self.block_size)
        while i < end and search.has(self, i):
            i += 1
        search.close(self, first, i)
        return <int64_t>i * self.block_size
