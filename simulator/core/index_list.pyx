"""Doubly linked lists of indices that share one array of links."""
from libc.stdlib cimport free

from simulator.core.errors cimport broken
from simulator.core.memory cimport resize


cdef class IndexLinks:
    """The links of `universe` elements, each in at most one list."""

    def __cinit__(self, int32_t universe=0):
        self.grow(universe)

    def __dealloc__(self):
        free(self._links)

    cdef int grow(self, int32_t universe) except -1 nogil:
        if universe <= self.universe:
            return 0
        cdef int32_t i
        resize(&self._links, universe * sizeof(Link))
        for i in range(self.universe, universe):
            self._links[i].prev = UNLINKED
            self._links[i].next = NONE
        self.universe = universe
        return 0

    cdef int check_list(self, const IndexList* listed) except -1 nogil:
        cdef int32_t i = listed.head, before = NONE, count = 0
        while i != NONE:
            if not 0 <= i < self.universe:
                return broken("IndexLinks: a link leads out of the universe")
            if self._links[i].prev != before:
                return broken("IndexLinks: prev and next disagree")
            count += 1
            if count > listed.size:
                return broken("IndexLinks: a list is longer than its size, or has a cycle")
            before = i
            i = self._links[i].next
        if count != listed.size or before != listed.tail:
            return broken("IndexLinks: a list does not end at its tail after size elements")
        return 0
