"""Doubly linked lists of indices: one object owns the links, any number of lists share them.

The elements are 0 .. universe - 1; each is in at most one list. A list is a plain struct that its user keeps where it
pleases, `new_list()` at first. Nothing here allocates but `grow`, so nothing else can fail.
"""
cimport cython
from libc.stdint cimport int32_t


cdef enum:
    NONE = -1                   # no element: before the head, after the tail
    UNLINKED = -2               # the `prev` of an element that is in no list


cdef struct Link:               # side by side: one cache line an element
    int32_t prev                # NONE at the head
    int32_t next                # NONE at the tail


cdef struct IndexList:
    int32_t head                # NONE if empty
    int32_t tail                # NONE if empty
    int32_t size


cdef inline IndexList new_list() noexcept nogil:
    cdef IndexList empty
    empty.head = NONE
    empty.tail = NONE
    empty.size = 0
    return empty


@cython.final
cdef class IndexLinks:
    cdef Link* _links
    cdef readonly int32_t universe      # elements that can be linked

    cdef inline bint is_linked(self, int32_t i) noexcept nogil:
        return self._links[i].prev != UNLINKED

    # The neighbours of a linked element, NONE at the end.
    cdef inline int32_t next(self, int32_t i) noexcept nogil:
        return self._links[i].next

    cdef inline int32_t prev(self, int32_t i) noexcept nogil:
        return self._links[i].prev

    # Put an unlinked element at the end of a list, at its front, or after one of its elements.
    cdef inline void push_back(self, IndexList* into, int32_t i) noexcept nogil:
        self._join(into, into.tail, i, NONE)

    cdef inline void push_front(self, IndexList* into, int32_t i) noexcept nogil:
        self._join(into, NONE, i, into.head)

    cdef inline void insert_after(self, IndexList* into, int32_t where, int32_t i) noexcept nogil:
        self._join(into, where, i, self._links[where].next)

    # Take an element out of the list that it is in.
    cdef inline void remove(self, IndexList* from_list, int32_t i) noexcept nogil:
        cdef Link* links = self._links
        cdef Link link = links[i]
        if link.prev == NONE:
            from_list.head = link.next
        else:
            links[link.prev].next = link.next
        if link.next == NONE:
            from_list.tail = link.prev
        else:
            links[link.next].prev = link.prev
        links[i].prev = UNLINKED
        from_list.size -= 1

    # Move the elements from `first` to `last` of a list to its end, in their order.
    cdef inline void move_back(self, IndexList* listed, int32_t first, int32_t last) noexcept nogil:
        cdef Link* links = self._links
        cdef int32_t before = links[first].prev, after = links[last].next
        if after == NONE:
            return
        links[after].prev = before
        if before == NONE:
            listed.head = after
        else:
            links[before].next = after
        links[first].prev = listed.tail
        links[listed.tail].next = first
        links[last].next = NONE
        listed.tail = last

    # Take out the first element and return it; NONE if the list is empty.
    cdef inline int32_t pop_front(self, IndexList* from_list) noexcept nogil:
        cdef int32_t i = from_list.head
        if i != NONE:
            self.remove(from_list, i)
        return i

    cdef inline void _join(self, IndexList* into, int32_t prev, int32_t i, int32_t next) noexcept nogil:
        cdef Link* links = self._links
        links[i].prev = prev
        links[i].next = next
        if prev == NONE:
            into.head = i
        else:
            links[prev].next = i
        if next == NONE:
            into.tail = i
        else:
            links[next].prev = i
        into.size += 1

    # Make the universe at least that large; the new elements are unlinked. -1 without memory, and nothing changed.
    cdef int grow(self, int32_t universe) except -1 nogil

    # Raise RuntimeError if the links of this list do not agree with each other and with its head, tail and size.
    cdef int check_list(self, const IndexList* listed) except -1 nogil
