"""Members of the bulk-decode cohort, for caches that give their blocks one by one."""
from libc.stdlib cimport free, malloc
cimport cython

from simulator.core.memory cimport resize


@cython.final
cdef class Members:
    """Buckets of slots, one for each phase.

    num_phases : tokens of a block.
    """

    def __cinit__(self, int32_t num_phases):
        if num_phases < 1:
            raise ValueError(f"num_phases must be at least 1, found {num_phases}")
        self._num_phases = num_phases
        self.reserve_groups(1)

    def __dealloc__(self):
        free(self._ends)
        free(self.members)

    cdef int reserve_groups(self, int32_t count) except -1:
        cdef int64_t size = 2 * <int64_t>count * self._num_phases, i
        free(self._ends)
        self._ends = <int32_t*>malloc(<size_t>size * sizeof(int32_t))
        if self._ends == NULL:
            raise MemoryError()
        for i in range(size):
            self._ends[i] = -1
        self.turn_to(0)
        return 0

    cdef void turn_to(self, int32_t group) noexcept nogil:
        self.first = self._ends + 2 * <size_t>group * self._num_phases
        self.last = self.first + self._num_phases

    cdef int reserve(self, int32_t num_slots) except -1 nogil:
        if num_slots > self._num_slots:
            resize(&self.members, num_slots * sizeof(Member))
            self._num_slots = num_slots
        return 0

    cdef void join(self, int32_t slot, int32_t phase, int64_t order) noexcept nogil:
        cdef Member* members = self.members
        cdef int32_t before = self.last[phase], after = -1
        while before >= 0 and members[before].order > order:
            after = before
            before = members[before].before
        members[slot].order, members[slot].before, members[slot].after = order, before, after
        if before >= 0:
            members[before].after = slot
        else:
            self.first[phase] = slot
        if after >= 0:
            members[after].before = slot
        else:
            self.last[phase] = slot
        self.size += 1

    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil:
        cdef int32_t before = self.members[slot].before, after = self.members[slot].after
        if before >= 0:
            self.members[before].after = after
        else:
            self.first[phase] = after
        if after >= 0:
            self.members[after].before = before
        else:
            self.last[phase] = before
        self.size -= 1
