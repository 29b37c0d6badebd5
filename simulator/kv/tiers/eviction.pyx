"""The eviction policy of a level of a tier: the base of all policies."""
from simulator.kv.tiers.chunk_table cimport Chunk


cdef class EvictionPolicy:
    """Base of all eviction policies; see eviction.pxd for the contract.

    table : the chunks of the level.
    """

    def __cinit__(self, ChunkTable table, *_, **__):
        self.table = table

    cdef int32_t newcomers(self) noexcept nogil:
        return 0

    cdef void missed(self, int32_t remembered) noexcept nogil:
        pass

    cdef int evict(self, int64_t count, int64_t guard) except -1 nogil:
        return 0

    cdef int evict_from(self, int32_t listed, int64_t count, int64_t guard) except -1 nogil:
        cdef int32_t element = self.table.chunks[listed].next, following, taken
        cdef const Chunk* it
        if self._log is not None:
            self.begin_note()
        while count > 0 and element != listed:
            it = &self.table.chunks[element]
            following = it.next
            if it.references == 0 and it.guard != guard:
                taken = <int32_t>min(count, <int64_t>self.table.length(element))
                if self._log is not None:
                    self.note(element)
                self.table.drop(element, taken)
                count -= taken
            element = following
        return 0

    cdef void copied(self, int32_t element) noexcept nogil:
        pass

    cdef void closed(self, int32_t element, int use) noexcept nogil:
        pass

    cdef void closed_all(self, const int32_t* elements, const uint8_t* uses, int32_t count) noexcept nogil:
        cdef int32_t i
        for i in range(count - 1, -1, -1):
            if elements[i] != 0 and uses[i]:
                self.closed(elements[i], uses[i])

    # ---- the debug face

    def keep_log(self):
        """Note the slots that are evicted from now on."""
        self._log = []

    def take_log(self):
        """Return the slots evicted since the last call, one list per eviction."""
        log, self._log = self._log, []
        return log

    def refused(self):
        """Note that too few chunks could be evicted."""
        self._log.append(None)

    def order(self):
        """Return the slots in eviction order."""
        return self.table.slots(0)

    cdef int begin_note(self) except -1 nogil:
        with gil:
            self._log.append([])
        return 0

    cdef int note(self, int32_t element) except -1 nogil:
        with gil:
            self._log[len(self._log) - 1].append(self.table.chunks[element].slot)
        return 0
