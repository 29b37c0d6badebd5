"""The KV cache of a replica: the base of all implementations."""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from simulator.core.memory cimport resize


cdef class KVCache:
    """KV blocks of one replica; see base.pxd for the contract.

    num_blocks : usable blocks: vLLM's num_gpu_blocks less the null block.
    block_size : tokens per block.
    """

    def __cinit__(self, int32_t num_blocks, int32_t block_size, *_, **__):
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"num_blocks and block_size must be at least 1, found {num_blocks} and {block_size}")
        self.num_blocks = num_blocks
        self.free_blocks = num_blocks
        self.block_size = self.hit_tokens = self.num_phases = block_size
        self.reserve_groups(1)

    def follow(self):
        """Return a CacheLog of hashes that enter and leave the prefix cache from now on.

        None: there is no prefix cache, or it cannot be followed.
        """
        return None

    def put_fences(self):
        """Let a tier read blocks of ended requests, see `fence`; NotImplementedError: not supported."""
        raise NotImplementedError(f"{type(self).__name__} has no blocks that a tier could read")

    def share_content(self, content):
        """Use this Content from now on; it has the same texts: each thread has its own."""

    def forget(self):
        """Forget all cached text, as a restart does; no sequence owns blocks."""

    def __dealloc__(self):
        free(self._due_of_all)
        free(self._given)
        free(self._owned)

    cdef int reserve_groups(self, int32_t count) except -1:
        free(self._due_of_all)
        self._due = self._due_of_all = <int32_t*>calloc(<size_t>count * self.num_phases, sizeof(int32_t))
        if self._due == NULL:
            raise MemoryError()
        return 0

    cdef int recur_after(self, int32_t num_phases) except -1:
        self.num_phases = num_phases
        return KVCache.reserve_groups(self, 1)

    cdef bint may_join_multi_token(self, int32_t slot) noexcept nogil:
        return False

    cdef void turn_to(self, int32_t group) noexcept nogil:
        self._due = self._due_of_all + <size_t>group * self.num_phases

    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil:
        if num_slots <= self.num_slots:
            return 0
        resize(&self._owned, num_slots * sizeof(int32_t))
        memset(self._owned + self.num_slots, 0, (num_slots - self.num_slots) * sizeof(int32_t))
        self.num_slots = num_slots
        return 0

    cdef int32_t lookup(self, int32_t row, int32_t num_tokens) except -1 nogil:
        return 0

    cdef int32_t free_hits(self) noexcept nogil:
        return 0

    cdef int32_t most_hits(self, int32_t row, int32_t num_tokens) noexcept nogil:
        return 0

    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil:
        return 0

    cdef int32_t whole_blocks(self, int64_t num_tokens) noexcept nogil:
        return blocks_for(num_tokens, self.block_size)

    cdef int slide(self, int32_t slot, int64_t settled_tokens) except -1 nogil:
        return 0

    cdef void begin_batch(self) noexcept nogil:
        pass

    cdef int end_batch(self) except -1 nogil:
        return 0

    cdef int64_t junction(self, int32_t slot) noexcept nogil:
        return 0

    cdef int64_t needed(self, int32_t slot, int32_t hits, int64_t slots) noexcept nogil:
        return blocks_for(slots, self.block_size) - hits + self.free_hits()

    cdef int64_t arriving_blocks(self, int32_t slot, int32_t group) noexcept nogil:
        return 0

    cdef int64_t _missing(self, int32_t slot, int64_t slots) noexcept nogil:
        return 0

    cdef int32_t blank_blocks(self) noexcept nogil:
        return self.free_blocks

    cdef int cache(self, int32_t slot, int64_t known_tokens) except -1 nogil:
        return 0

    cdef int release(self, int32_t slot, bint returns) except -1 nogil:
        return 0

    cdef int gives_up(self, int32_t row) except -1 nogil:
        return 0

    cdef int release_late(self, int32_t slot) except -1 nogil:
        return self.release(slot, False)

    cdef int fence(self, int32_t slot, int32_t begin, int32_t end, int64_t reader) except -1 nogil:
        return 0

    cdef bint is_held(self, int32_t block) noexcept nogil:
        return False

    cdef int announce_all(self, int32_t slot) except -1 nogil:
        return 0

    cdef int announce_turn(self, int32_t slot, int64_t computed) except -1 nogil:
        return 0

    cdef bint may_join(self, int32_t slot, int64_t computed) noexcept nogil:
        return True

    cdef int64_t regular_until(self, int32_t slot) noexcept nogil:
        return INT64_MAX

    cdef int join(self, int32_t slot, int32_t phase, int64_t order) except -1 nogil:
        self._due[phase] += 1
        return 0

    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil:
        self._due[phase] -= 1

    cdef void settle(self, int32_t slot, int64_t num_computed) noexcept nogil:
        pass

    cdef int32_t owned_blocks(self, int32_t slot, bint is_member, int64_t num_computed) noexcept nogil:
        return self._owned[slot]

    cdef void step_begin(self, int32_t phase) noexcept nogil:
        pass

    cdef int step_before(self, int64_t order) except -1 nogil:
        return 0

    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil:
        return 0

    cdef int step_of(self, int32_t group, int32_t phase) except -1 nogil:
        self.turn_to(group)
        return self.step_run(phase, 1)
