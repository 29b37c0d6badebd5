"""The global event queue: a heap with four children to a node, half as deep as with two, a family in two lines."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from simulator.core.errors cimport broken
from simulator.core.memory cimport resize

cdef enum:
    FIRST_ROOM = 64
    ARITY = 4


cdef class EventQueue:
    """Events in order of time, then priority, then insertion."""

    def __dealloc__(self):
        free(self._heap)

    cdef int push(self, int64_t time_ns, int priority, int32_t kind, int32_t replica, int64_t payload) except -1 nogil:
        if self.size == self._room:
            self._grow()
        cdef Event event
        event.time_ns = time_ns
        event.order = (<int64_t>priority << 48) | self._sequence
        event.kind = kind
        event.replica = replica
        event.payload = payload
        self._sequence += 1
        cdef int64_t hole = self.size, parent
        self.size += 1
        while hole > 0:
            parent = (hole - 1) // ARITY
            if not event_before(&event, &self._heap[parent]):
                break
            self._heap[hole] = self._heap[parent]
            hole = parent
        self._heap[hole] = event
        return 0

    cdef Event pop(self) noexcept nogil:
        cdef Event first = self._heap[0]
        self.size -= 1
        if self.size > 0:
            self._sift_down(&self._heap[self.size])
        return first

    cdef void _sift_down(self, const Event* event) noexcept nogil:
        cdef Event* heap = self._heap
        cdef int64_t hole = 0, first = 1, child, other
        while first < self.size:
            if first + ARITY <= self.size:      # a whole family: a knock-out without branches
                child = first + event_before(&heap[first + 1], &heap[first])
                other = first + 2 + event_before(&heap[first + 3], &heap[first + 2])
                child = other if event_before(&heap[other], &heap[child]) else child
            else:
                child = first
                for other in range(first + 1, self.size):
                    child = other if event_before(&heap[other], &heap[child]) else child
            if not event_before(&heap[child], event):
                break
            heap[hole] = heap[child]
            hole = child
            first = ARITY * hole + 1
        heap[hole] = event[0]

    cdef int64_t last_ns(self, int32_t kind, int32_t replica) noexcept nogil:
        cdef int64_t last_ns = -1, i
        for i in range(self.size):
            if self._heap[i].kind == kind and self._heap[i].replica == replica:
                last_ns = max(last_ns, self._heap[i].time_ns)
        return last_ns

    cdef void clear(self) noexcept nogil:
        self.size = 0
        self._sequence = 0

    cdef int _grow(self) except -1 nogil:
        cdef int64_t room = max(<int64_t>FIRST_ROOM, 2 * self._room)
        resize(&self._heap, room * sizeof(Event))
        self._room = room
        return 0

    cpdef int check(self) except -1 nogil:
        cdef int64_t i
        for i in range(1, self.size):
            if event_before(&self._heap[i], &self._heap[(i - 1) // ARITY]):
                return broken("EventQueue: an event stands before its parent")
        return 0

    # The face for tests and exploration.

    def __len__(self):
        return self.size

    def push_event(self, time_ns, priority, kind=0, replica=-1, payload=0):
        """Add an event."""
        self.push(time_ns, priority, kind, replica, payload)

    def pop_event(self):
        """Remove the first event and return it as a dict of its fields."""
        if self.size == 0:
            raise IndexError("pop from an empty EventQueue")
        return self.pop()

    def peek_event(self):
        """Return the first event as a dict of its fields, None if there is none."""
        return self.top()[0] if self.size else None

    @property
    def next_time_ns(self):
        """Time of the first event, NEVER_NS if there is none."""
        return self.next_time()
