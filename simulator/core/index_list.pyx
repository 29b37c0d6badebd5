"""Doubly linked lists of indices that share one array of links."""
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc

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


cdef class IndexLists:
    """Some lists over one universe, for tests: unlike IndexLinks it checks arguments."""

    cdef IndexLinks _links
    cdef IndexList* _lists
    cdef int32_t _num_lists

    def __cinit__(self, int32_t num_lists, int32_t universe):
        self._links = IndexLinks(universe)
        self._lists = <IndexList*>malloc(num_lists * sizeof(IndexList))
        if self._lists == NULL:
            raise MemoryError()
        self._num_lists = num_lists
        cdef int32_t k
        for k in range(num_lists):
            self._lists[k] = new_list()

    def __dealloc__(self):
        free(self._lists)

    cdef IndexList* _at(self, int32_t k) except NULL:
        if not 0 <= k < self._num_lists:
            raise IndexError(f"list {k} of {self._num_lists}")
        return &self._lists[k]

    cdef int32_t _unlinked(self, int32_t i) except -1:
        if not 0 <= i < self._links.universe or self._links.is_linked(i):
            raise ValueError(f"element {i} is in a list already, or not in the universe")
        return i

    def push_back(self, k, i):
        """Put an element at the end of list k."""
        self._links.push_back(self._at(k), self._unlinked(i))

    def push_front(self, k, i):
        """Put an element at the front of list k."""
        self._links.push_front(self._at(k), self._unlinked(i))

    def insert_after(self, k, where, i):
        """Put an element after another of list k."""
        self._links.insert_after(self._at(k), where, self._unlinked(i))

    def remove(self, k, i):
        """Take an element out of list k, which it is in."""
        self._links.remove(self._at(k), i)

    def move_back(self, k, first, last):
        """Move the elements from `first` to `last` of list k, which follow each other in this order, to its end."""
        self._links.move_back(self._at(k), first, last)

    def pop_front(self, k):
        """Take the first element out of list k and return it, -1 if the list is empty."""
        return self._links.pop_front(self._at(k))

    def grow(self, universe):
        """Make the universe at least that large."""
        self._links.grow(universe)

    def is_linked(self, i):
        """Return whether an element is in some list."""
        return self._links.is_linked(i)

    def forwards(self, k):
        """Return list k from head to tail."""
        cdef int32_t i = self._at(k).head
        found = []
        while i != NONE:
            found.append(i)
            i = self._links.next(i)
        return found

    def backwards(self, k):
        """Return list k from tail to head."""
        cdef int32_t i = self._at(k).tail
        found = []
        while i != NONE:
            found.append(i)
            i = self._links.prev(i)
        return found

    def size(self, k):
        """Return the length of list k."""
        return self._at(k).size

    def check(self):
        """Raise RuntimeError if a list is inconsistent, or an element outside all lists is marked as linked."""
        cdef int32_t k, i, linked = 0, listed = 0
        for k in range(self._num_lists):
            self._links.check_list(&self._lists[k])
            listed += self._lists[k].size
        for i in range(self._links.universe):
            linked += self._links.is_linked(i)
        if linked != listed:
            raise RuntimeError("IndexLinks: an element is marked as linked but is in no list")
