"""KV blocks that are all taken at admission: a running sequence never needs another one."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.base cimport KVCache, blocks_beyond


@cython.final
cdef class ReservingKV(KVCache):
    """The number of blocks of each sequence; parameters as those of KVCache.

    Its scheduler gives a sequence room for its longest text before it joins the bulk-decode cohort, so that no step
    takes a block. Without prefix caching.
    """

    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil:
        cdef int32_t need = blocks_beyond(self._owned[slot], slots, self.block_size)
        if max(need, blocks_beyond(self._owned[slot], full_tokens, self.block_size)) + watermark > self.free_blocks:
            return 0
        self._owned[slot] += need
        self.free_blocks -= need
        return 1

    cdef int release(self, int32_t slot, bint returns) except -1 nogil:
        self.free_blocks += self._owned[slot]
        self._owned[slot] = 0
        return 0

    cdef int join(self, int32_t slot, int32_t phase, int64_t order) except -1 nogil:
        return 0

    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil:
        pass

    def check(self, owned_total):
        """Raise RuntimeError unless free and owned blocks make up the pool.

        owned_total : blocks that all sequences own, as counted by the caller.
        """
        if self.free_blocks < 0 or self.free_blocks + owned_total != self.num_blocks:
            raise RuntimeError(f"{self.free_blocks} free + {owned_total} owned != {self.num_blocks} blocks")
