"""KV blocks as BLIS keeps them, with the bookkeeping of `SparseKV`: the decisions of `BlisKV`.

Reusing a block removes its hash from the prefix cache, even if another block holds that text. So, unlike vLLM's, reuse
and caching are done in the order of the running list, within an iteration too.

Private text is a number of blocks only while its request runs for the first time: no earlier copy of it exists, so no
reuse can remove its hash. When the request stops running and may come back, its blocks get records and hashes like
those of shared text, and so do all blocks that it fills from then on.
"""
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t
cimport cython

from simulator.kv.content cimport Content
from simulator.kv.members cimport Member, Members
from simulator.kv.sparse cimport Holding, SparseKV


@cython.final
cdef class SparseBlisKV(SparseKV):
    """KV blocks of one replica with prefix caching, as BLIS keeps them.

    num_blocks, block_size, content : as for SparseKV.
    """

    cdef Members _takers        # the whole bulk-decode cohort, by the phase in which a member needs a block
    cdef int32_t _next_taker    # slot: the next member that step_before gives a block; -1: none
    cdef int32_t _last_taker    # slot: the last member that needs a block in this iteration; meaningless without one
    cdef int32_t _num_takers    # members that still need a block in this iteration

    def __cinit__(self, int32_t num_blocks, int32_t block_size, Content content):
        self.finds_outputs = True       # outputs of a request that was preempted are in the prefix cache, too
        self._append_unhashed = True
        self._cached.prefixes.drops_hashes = True
        self._lists_each = True
        self._takers = Members(block_size)

    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil:
        self._takers.reserve(num_slots)
        return SparseKV.reserve_slots(self, num_slots)

    # ---- texts in the prefix cache

    cdef int32_t _shared_blocks(self, int32_t row) noexcept nogil:
        return self._listed_blocks(row, INT32_MAX if self._content.has_run(row) else self._content.public_tokens(row))

    cdef int32_t _listed_blocks(self, int32_t row, int64_t num_tokens) noexcept nogil:
        """Return the number of blocks of a text that are cached; blocks of a single output token are not."""
        if self.block_size == 1:
            num_tokens = min(num_tokens, <int64_t>self._content.prompt_tokens(row))
        return <int32_t>(num_tokens // self.block_size)

    cdef int release(self, int32_t slot, bint returns) except -1 nogil:
        cdef Holding* holding = &self._holdings[slot]
        if holding.num_hashed > holding.num_public and not self._content.has_left(holding.row):
            self._list_private(holding)
        return SparseKV.release(self, slot, False)

    cdef int _list_private(self, Holding* holding) except -1 nogil:
        """Let its private blocks be found one by one."""
        cdef int32_t full = self._listed_blocks(holding.row, <int64_t>holding.num_hashed * self.block_size)
        holding.num_hashed = holding.num_public
        self._publish(holding, full)
        holding.num_hashed = holding.num_public = full
        return 0

    # ---- the bulk-decode cohort

    cdef int join(self, int32_t slot, int32_t phase, int64_t order) except -1 nogil:
        self._takers.join(slot, phase, order)
        return SparseKV.join(self, slot, phase, order)

    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil:
        self._takers.leave(slot, phase)
        SparseKV.leave(self, slot, phase)

    cdef void step_begin(self, int32_t phase) noexcept nogil:
        self._next_taker, self._last_taker = self._takers.first[phase], self._takers.last[phase]
        self._num_takers = self._due[phase]
        self._full_member = -1
        if self._members.size > 0:
            self._full_member = self._members.first[(phase + 1) % self.block_size]

    cdef int step_before(self, int64_t order) except -1 nogil:
        if self._members.size > 0 or (self._num_takers > 0 and self._takers.members[self._last_taker].order >= order):
            return self._step_in_order(order)
        self._take(self._num_takers)
        self._num_takers = 0
        return 0

    cdef int _step_in_order(self, int64_t order) except -1 nogil:
        """Give members their next block, and cache the blocks that others fill, by order."""
        cdef const Member* takers = self._takers.members
        cdef const Member* fillers = self._members.members
        cdef int32_t taker = self._next_taker if self._num_takers > 0 else -1, filler = self._full_member
        cdef int64_t taken_by, filled_by
        while True:
            taken_by = takers[taker].order if taker >= 0 else order
            filled_by = fillers[filler].order if filler >= 0 else order
            if taken_by < order and taken_by <= filled_by:
                self._take(1)
                self._num_takers -= 1
                self._owned[taker] += 1
                taker = takers[taker].after
            elif filled_by < order:
                self.cache(filler, <int64_t>self._owned[filler] * self.block_size)
                filler = fillers[filler].after
            else:
                break
        self._next_taker, self._full_member = taker, filler
        return 0

    cdef void _take(self, int32_t count) noexcept nogil:
        """Take blocks from the front of the free list."""
        self.free_blocks -= count
        if self.free_blocks < self._cached.size:
            self._cached.evict(self._cached.size - self.free_blocks)

    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil:
        cdef int32_t taken = 0, _
        for _ in range(count):
            if self._members.size > 0:
                self.step_begin(phase)
                self._step_in_order(INT64_MAX)
            else:
                taken += self._due[phase]
            phase = phase + 1 if phase + 1 < self.block_size else 0
        self._take(taken)
        return 0
