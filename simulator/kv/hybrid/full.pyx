"""Layers with attention to the whole context: nothing is ever outdated."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.hybrid.layer_kind cimport LayerKind, Search


@cython.final
cdef class FullAttention(LayerKind):
    """A hit is the run of blocks from the beginning.

    Parameters as those of LayerKind; cut : see layer_kind.pxd.

    A hit that may end inside a block includes the longest cached beginning of the first block that is not cached whole.
    """

    def __cinit__(self, int32_t block_size, int32_t unit, groups, int32_t cut=0):
        self.is_full, self.drops = True, cut > 0

    cdef int64_t find(self, Search search, int64_t most, bint drop) noexcept nogil:
        cdef int32_t count = <int32_t>(min(most, search.reach) // self.block_size), i = 0
        cdef int64_t found, end
        while i < count and search.has(self, i):
            i += 1
        found = <int64_t>i * self.block_size
        if self.unit < self.block_size:
            end = min(found + self.block_size - self.unit, min(most, search.reach) // self.unit * self.unit)
            while end > found and not search.has_until(self, i, end):
                end -= self.unit
            found = max(found, end)
        if drop and found > 0:
            found -= min(self.unit, self.block_size)
        found = found // self.unit * self.unit
        search.close(self, 0, <int32_t>((found + self.block_size - 1) // self.block_size))
        return found
