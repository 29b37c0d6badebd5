"""Layers of linear attention: a state of fixed size in place of the KV of each token.

With prefix caching (`mamba_cache_mode` "align") prompts are computed in chunks that end where blocks end; the state at
each end has a block of its own, and only the newest one is kept. Without, a sequence has one block for life:
`EndlessState`, a kind with blocks as long as the longest text. A step that verifies drafts writes a state behind each,
in blocks of the sequence alone, behind the newest state; the next step overwrites the states of rejected drafts.
"""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
cimport cython

from simulator.kv.hybrid.block_store cimport NO_BLOCK
from simulator.kv.hybrid.layer_kind cimport Ends, LayerKind, Run, Search, Table, Tails, next_tail, tails_of


@cython.final
cdef class AlignedState(LayerKind):
    """A hit is a state; blocks before are null.

    retention : see `tails_of`. checkpoint, drafts, cut : see layer_kind.pxd.
    """

    cdef Tails _tails

    def __cinit__(self, int32_t block_size, int32_t unit, groups, int64_t retention,
                  int32_t checkpoint=0, int32_t drafts=0, int32_t cut=0):
        self.keeps_newest, self.checkpoint, self.drafts = True, checkpoint, drafts
        self.drops = cut > 0
        self._tails = tails_of(1, block_size, block_size, retention, False)
        self._tails.earlier = cut > 1
        self.frees_at = 1 % block_size
        self.is_local = True

    cdef int64_t outdated(self, int64_t tokens) noexcept nogil:
        return max(tokens - 1, <int64_t>0)

    cdef int64_t steady_until(self, const Table* table, int64_t computed, int64_t settled) noexcept nogil:
        cdef int32_t begin = <int32_t>(self.outdated(settled) // self.block_size)
        if table.begin != begin or (begin < table.size - 1 and table.blocks[begin] == NO_BLOCK):
            return 0
        return INT64_MAX if settled >= 1 else 1 + self.block_size       # the first state follows none

    cdef Run kept(self, int32_t begin, const Ends* ends) noexcept nogil:
        return next_tail(&self._tails, self.block_size, begin, ends)

    cdef int64_t find(self, Search search, int64_t most, bint drop) noexcept nogil:
        cdef int64_t end = min(most, search.reach)
        cdef int32_t i = <int32_t>(end // self.block_size) - 1
        if self.unit < self.block_size:
            return self._find_inside(search, end // self.unit * self.unit)
        while i >= 0:
            if (<int64_t>i + 1) * self.block_size % self.unit == 0 and search.has(self, i):
                search.close(self, i, i + 1)
                return (<int64_t>i + 1) * self.block_size
            i -= 1
        search.close(self, 0, 0)
        return 0

    cdef int64_t _find_inside(self, Search search, int64_t end) noexcept nogil:
        """Return the last place up to `end` of which there is a state, wherever in a block."""
        cdef int32_t i
        while end > 0:
            i = <int32_t>((end - 1) // self.block_size)
            if search.has_until(self, i, end):
                search.close(self, i, i + 1)
                return end
            end -= self.unit
        search.close(self, 0, 0)
        return 0


@cython.final
cdef class EndlessState(LayerKind):
    """One block per sequence, never found by others; it fits the longest text.

    drafts : as above.
    """

    def __cinit__(self, int32_t block_size, int32_t unit, groups, int32_t drafts=0):
        self.takes_blocks, self.drafts = False, drafts
