"""A copy in host memory of the blocks that a replica fills: the base of all mirrors, which holds nothing."""


cdef class Mirror(KVTier):
    """Base of mirrors; see mirror.pxd for the contract."""

    def attach(self, kv, content, use=None, with_tables=False):
        """See KVTier; `kv` is a BlisKV."""
        self.block_size = kv.block_size
        kv.mirror_to(self)

    cdef Place place_of(self, uint64_t hash) noexcept nogil:
        return ABSENT

    cdef void reload(self, uint64_t hash) noexcept nogil:
        pass

    cdef int keep(self, uint64_t hash) except -1 nogil:
        return 0

    cdef int64_t take_waiting_ns(self) noexcept nogil:
        return 0

    cdef int begin_run(self, uint64_t hash) except -1 nogil:
        return 0

    cdef bint extend_run(self, uint64_t hash) except -1 nogil:
        return False

    cdef int fetch(self) except -1 nogil:
        return 0

    cdef int put_off(self, int32_t row) except -1 nogil:
        return 0

    cdef Wait wait_of(self, int32_t row) noexcept nogil:
        return NO_WAIT

    cdef int was_served(self, int32_t row) except -1 nogil:
        return 0

    cdef int look_again(self) except -1 nogil:
        return 0

    cdef bint takes(self, int32_t held, int32_t num_blocks) noexcept nogil:
        return False

    cdef int take(self, int32_t block, uint64_t hash) except -1 nogil:
        return 0

    cdef int32_t next_taken(self, int32_t block) noexcept nogil:
        return 0

    cdef uint64_t hash_of(self, int32_t block) noexcept nogil:
        return 0

    cdef void give_back(self, int32_t block) noexcept nogil:
        pass
