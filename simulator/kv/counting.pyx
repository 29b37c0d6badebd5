"""KV blocks by number only: exact where no decision depends on which block is which.

This holds without prefix caching, where only the number of free blocks enters a decision. It also holds with prefix
caching as long as no request can find blocks that another request, or itself before a preemption, left behind: no
shared prompts, and a pool in which no request is ever preempted.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.base cimport KVCache, blocks_beyond, blocks_for


@cython.final
cdef class CountingKV(KVCache):
    """The number of blocks of each sequence; parameters as those of KVCache."""

    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil:
        cdef int32_t have = self._owned[slot]
        cdef int32_t need = blocks_beyond(have, slots, self.block_size)
        cdef int32_t whole = max(blocks_beyond(have, full_tokens, self.block_size), need)
        if whole + watermark > self.free_blocks:
            return 0
        self._owned[slot] = have + need
        self.free_blocks -= need
        return 1

    cdef int release(self, int32_t slot, bint returns) except -1 nogil:
        self.free_blocks += self._owned[slot]
        self._owned[slot] = 0
        return 0

    cdef bint may_join_multi_token(self, int32_t slot) noexcept nogil:
        return True

    cdef void settle(self, int32_t slot, int64_t num_computed) noexcept nogil:
        self._owned[slot] = blocks_for(num_computed + self.ahead_tokens, self.block_size)

    cdef int32_t owned_blocks(self, int32_t slot, bint is_member, int64_t num_computed) noexcept nogil:
        return blocks_for(num_computed + self.ahead_tokens, self.block_size) if is_member else self._owned[slot]

    cdef void step_begin(self, int32_t phase) noexcept nogil:
        self.free_blocks -= self._due[phase]

    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil:
        cdef int32_t _
        for _ in range(count):
            self.free_blocks -= self._due[phase]
            phase = phase + 1 if phase + 1 < self.num_phases else 0
        return 0

    cdef int step_of(self, int32_t group, int32_t phase) except -1 nogil:
        self.free_blocks -= self.due_of(group, phase)
        return 0

    def check(self, owned_total):
        """Raise RuntimeError unless free and owned blocks make up the pool.

        owned_total : blocks that all sequences own, as counted by the caller.
        """
        if self.free_blocks < 0 or self.free_blocks + owned_total != self.num_blocks:
            raise RuntimeError(f"{self.free_blocks} free + {owned_total} owned != {self.num_blocks} blocks")
