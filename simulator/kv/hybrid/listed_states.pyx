"""States that entered the prefix cache and that their request still holds, until a tier takes them."""
from libc.stdlib cimport free
cimport cython

from simulator.core.memory cimport resize


@cython.final
cdef class ListedStates:
    """A list of states; a tier empties it by `count`."""

    def __dealloc__(self):
        free(self.states)

    cdef int add(self, ListedState state) except -1 nogil:
        cdef int32_t i = self.count
        if self.count == self._room:
            resize(&self.states, (2 * <size_t>self._room + 16) * sizeof(ListedState))
            self._room = 2 * self._room + 16
        while i > 0 and self.states[i - 1].row == state.row and self.states[i - 1].group == state.group and (
                self.states[i - 1].end > state.end):
            self.states[i] = self.states[i - 1]
            i -= 1
        self.states[i] = state
        self.count += 1
        return 0

    cdef void drop(self, int32_t row) noexcept nogil:
        cdef int32_t i, kept = 0
        for i in range(self.count):
            if self.states[i].row != row:
                self.states[kept] = self.states[i]
                kept += 1
        self.count = kept

    cdef void drop_block(self, int32_t row, int32_t block) noexcept nogil:
        cdef int32_t i, kept = 0
        for i in range(self.count):
            if self.states[i].row != row or self.states[i].block != block:
                self.states[kept] = self.states[i]
                kept += 1
        self.count = kept
