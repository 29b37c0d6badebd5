"""Indices in order of three keys: the waiting queue under priority scheduling, the next change of each transfer."""
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from simulator.core.errors cimport broken
from simulator.core.heap cimport grow, in_order, sift, sift_up
from simulator.core.memory cimport resize


cdef class IndexHeap:
    """Indices in order of a key, a tie, then a rank.

    num_rows : if given, indices are 0 .. num_rows - 1, and the heap records the place of each one: 4 bytes each.
    """

    def __init__(self, Py_ssize_t num_rows=0):
        if num_rows > 0 and self._places == NULL:
            self._places = <int32_t*>malloc(num_rows * sizeof(int32_t))
            if self._places == NULL:
                raise MemoryError()
            memset(self._places, 0xFF, num_rows * sizeof(int32_t))          # -1
            self._num_places = <int32_t>num_rows

    def __dealloc__(self):
        free(self._heap)
        free(self._places)

    cdef int reserve(self, int32_t count) except -1 nogil:
        if count > self._room:
            resize(&self._heap, count * sizeof(Placed))
            self._room = count
        if count > self._num_places:
            resize(&self._places, count * sizeof(int32_t))
            memset(&self._places[self._num_places], 0xFF, (count - self._num_places) * sizeof(int32_t))
            self._num_places = count
        return 0

    cdef int push(self, int32_t index, int64_t key, int64_t tie, int32_t rank) except -1 nogil:
        if self.size == self._room:
            grow(&self._heap, &self._room, sizeof(Placed), 64)
        self.size += 1
        sift_up(self._heap, self._places, self.size - 1, Placed(key, tie, rank, index))
        return 0

    cdef void put(self, int32_t index, int64_t key, int64_t tie) noexcept nogil:
        cdef int32_t place = self._places[index]
        cdef Placed entry = Placed(key, tie, 0, index)
        if place < 0:
            place = self.size
            self.size += 1
        else:
            entry.tie = self._heap[place].tie
        sift(self._heap, self._places, self.size, place, entry)

    cdef int32_t pop(self) noexcept nogil:
        cdef int32_t index = self.top()
        if index >= 0:
            self._take_out(0)
        return index

    cdef int remove(self, int32_t index) noexcept nogil:
        cdef int32_t hole = 0
        if self._places != NULL:
            hole = self._places[index] if self._places[index] >= 0 else self.size
        else:
            while hole < self.size and self._heap[hole].index != index:
                hole += 1
        if hole == self.size:
            return -1
        self._take_out(hole)
        return 0

    cdef void _take_out(self, int32_t hole) noexcept nogil:
        if self._places != NULL:
            self._places[self._heap[hole].index] = -1
        self.size -= 1
        if hole < self.size:
            sift(self._heap, self._places, self.size, hole, self._heap[self.size])

    cdef void clear(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.size if self._places != NULL else 0):
            self._places[self._heap[i].index] = -1
        self.size = 0

    cpdef int check(self) except -1 nogil:
        cdef int32_t i
        if not in_order(self._heap, self.size):
            return broken("IndexHeap: a row stands before its parent")
        for i in range(self.size if self._places != NULL else 0):
            if self._places[self._heap[i].index] != i:
                return broken("IndexHeap: a row is not where its place says")
        return 0

    # The face for tests and exploration.

    def __len__(self):
        return self.size

    def push_row(self, row, priority, arrival_ns, tie_rank):
        """Add a row that is not in it."""
        self.push(row, priority, arrival_ns, tie_rank)

    def top_row(self):
        """Return the first row, -1 if there is none."""
        return self.top()

    def pop_row(self):
        """Remove and return the first row, -1 if there is none."""
        return self.pop()

    def remove_row(self, row):
        """Remove a row wherever it is."""
        if (self._places != NULL and row >= self._num_places) or self.remove(row) < 0:
            raise KeyError(row)

    def sorted_rows(self):
        """Return the rows in the order in which they would be popped."""
        cdef int32_t i
        entries = [(self._heap[i].key, self._heap[i].tie, self._heap[i].rank, self._heap[i].index)
                   for i in range(self.size)]
        return [entry[3] for entry in sorted(entries)]

    def empty(self):
        """Forget every row."""
        self.clear()

    def move(self, index, key, tie):
        """Add an index, or move it to another key."""
        self.reserve(index + 1)
        self.put(index, key, tie)

    def first(self):
        """Return key and index of the first; None: there is none."""
        return (self.next_ns(), self.top()) if self.size > 0 else None
