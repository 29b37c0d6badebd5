"""The waiting queue under priority scheduling, a binary heap in one array."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from simulator.core.errors cimport broken
from simulator.core.memory cimport resize

cdef enum:
    FIRST_ROOM = 64


cdef inline bint stands_before(const Waiting* a, const Waiting* b) noexcept nogil:
    # waits_before without a branch: which of two children goes first is a coin toss
    return (a.priority < b.priority) | ((a.priority == b.priority) & (
        (a.arrival_ns < b.arrival_ns) | ((a.arrival_ns == b.arrival_ns) & (a.tie_rank < b.tie_rank))))


cdef class IndexHeap:
    """Rows in order of priority, arrival, then rank.

    num_rows : if given, rows are 0 .. num_rows - 1, and the heap records the place of each one: 4 bytes each.
    """

    def __init__(self, Py_ssize_t num_rows=0):
        if num_rows > 0 and self._places == NULL:
            self._places = <int32_t*>malloc(num_rows * sizeof(int32_t))
            if self._places == NULL:
                raise MemoryError()
            memset(self._places, 0xFF, num_rows * sizeof(int32_t))          # -1

    def __dealloc__(self):
        free(self._heap)
        free(self._places)

    cdef int push(self, int32_t row, int64_t priority, int64_t arrival_ns, int32_t tie_rank) except -1 nogil:
        if self.size == self._room:
            self._grow()
        cdef Waiting entry
        entry.arrival_ns = arrival_ns
        entry.priority = priority
        entry.tie_rank = tie_rank
        entry.row = row
        self.size += 1
        self._sift(self.size - 1, &entry)
        return 0

    cdef int32_t top(self) noexcept nogil:
        return self._heap[0].row if self.size > 0 else -1

    cdef int32_t pop(self) noexcept nogil:
        if self.size == 0:
            return -1
        cdef int32_t row = self._heap[0].row
        self._take_out(0)
        return row

    cdef int remove(self, int32_t row) noexcept nogil:
        cdef int32_t hole = 0
        if self._places != NULL:
            hole = self._places[row] if self._places[row] >= 0 else self.size
        else:
            while hole < self.size and self._heap[hole].row != row:
                hole += 1
        if hole == self.size:
            return -1
        self._take_out(hole)
        return 0

    cdef void _take_out(self, int32_t hole) noexcept nogil:
        cdef Waiting last = self._heap[self.size - 1]
        if self._places != NULL:
            self._places[self._heap[hole].row] = -1
        self.size -= 1
        if hole < self.size:
            self._sift(hole, &last)

    cdef void clear(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.size if self._places != NULL else 0):
            self._places[self._heap[i].row] = -1
        self.size = 0

    cdef void _sift(self, int32_t hole, const Waiting* entry) noexcept nogil:
        # Put `entry` where it belongs, from the hole upwards or downwards, whichever it needs. Downwards it mostly goes
        # to one of the last places: the hole goes there first, for one comparison a level.
        cdef Waiting* heap = self._heap
        cdef int32_t top = hole, child
        while hole > 0 and waits_before(entry, &heap[(hole - 1) >> 1]):
            self._set(hole, &heap[(hole - 1) >> 1])
            hole = (hole - 1) >> 1
        child = 2 * hole + 1 if hole == top else self.size
        while child < self.size:
            child += child + 1 < self.size and stands_before(&heap[child + 1], &heap[child])
            self._set(hole, &heap[child])
            hole = child
            child = 2 * hole + 1
        while hole > top and waits_before(entry, &heap[(hole - 1) >> 1]):
            self._set(hole, &heap[(hole - 1) >> 1])
            hole = (hole - 1) >> 1
        self._set(hole, entry)

    cdef int _grow(self) except -1 nogil:
        cdef int32_t room = max(<int32_t>FIRST_ROOM, 2 * self._room)
        resize(&self._heap, room * sizeof(Waiting))
        self._room = room
        return 0

    cpdef int check(self) except -1 nogil:
        cdef int32_t i
        for i in range(1, self.size):
            if waits_before(&self._heap[i], &self._heap[(i - 1) >> 1]):
                return broken("IndexHeap: a row stands before its parent")
        for i in range(self.size if self._places != NULL else 0):
            if self._places[self._heap[i].row] != i:
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
        if self.remove(row) < 0:
            raise KeyError(row)

    def sorted_rows(self):
        """Return the rows in the order in which they would be popped."""
        cdef int32_t i
        entries = [(self._heap[i].priority, self._heap[i].arrival_ns, self._heap[i].tie_rank, self._heap[i].row)
                   for i in range(self.size)]
        return [entry[3] for entry in sorted(entries)]

    def empty(self):
        """Forget every row."""
        self.clear()
