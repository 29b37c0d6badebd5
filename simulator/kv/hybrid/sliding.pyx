"""Layers with attention to a window: the last `window` tokens, the query's own included."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t
cimport cython

from simulator.kv.hybrid.layer_kind cimport Ends, LayerKind, Run, Search, Table, Tails, next_tail, tails_of


@cython.final
cdef class SlidingWindow(LayerKind):
    """A hit is a window of blocks before its end; blocks before the window are null.

    window : tokens.
    most_tokens : the most tokens in the window and in iterations in flight, for a check that a text fits whole.
    retention : see `tails_of`. cut : see layer_kind.pxd.
    """

    cdef int64_t _window
    cdef int32_t _length        # blocks of a hit
    cdef Tails _tails

    def __cinit__(self, int32_t block_size, int32_t unit, groups, int64_t window, int64_t most_tokens,
                  int64_t retention, int32_t cut=0):
        self._window = window
        self.most_blocks = <int32_t>((most_tokens + block_size - 1) // block_size) + 1
        self._length = <int32_t>((window - 1 + block_size - 1) // block_size)
        self.drops = cut > 0
        self._tails = tails_of(self._length + self.drops, block_size, unit, retention, self.drops)
        self._tails.earlier = cut > 1
        self.frees_at = (window - 1) % block_size
        self.is_local = True

    cdef int64_t outdated(self, int64_t tokens) noexcept nogil:
        return max(tokens - self._window + 1, <int64_t>0)

    cdef int64_t steady_until(self, const Table* table, int64_t computed, int64_t settled) noexcept nogil:
        if table.begin != self.outdated(settled) // self.block_size:
            return 0
        return INT64_MAX if settled >= self._window - 1 else self._window - 1 + self.block_size

    cdef Run kept(self, int32_t begin, const Ends* ends) noexcept nogil:
        return next_tail(&self._tails, self.block_size, begin, ends)

    cdef int64_t find(self, Search search, int64_t most, bint drop) noexcept nogil:
        # from the right: the first run that is long enough; a run from the beginning may be shorter
        cdef int32_t i = <int32_t>(min(most, search.reach) // self.block_size) - 1, run = 0, size = 0
        while i >= 0:
            if run == 0 and (<int64_t>i + 1 - drop) * self.block_size % self.unit != 0:
                i -= 1
                continue
            if not search.has(self, i):
                run = 0
            else:
                run += 1
                if run >= self._length + drop:
                    size = i + run
                    break
            i -= 1
        if size == 0:
            size, i = run, 0
            while size > 0 and <int64_t>size * self.block_size % self.unit != 0:
                size -= 1
        if drop and size > 0:
            size -= 1
            while <int64_t>size * self.block_size % self.unit != 0:
                size -= 1
        search.close(self, min(i, size), size)
        return <int64_t>size * self.block_size
