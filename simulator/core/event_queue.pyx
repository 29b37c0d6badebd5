"""The global event queue."""
from libc.stdlib cimport free

from simulator.core.errors cimport broken
from simulator.core.heap cimport grow, in_order, sift_down, sift_up


cdef class EventQueue:
    """Events in order of time, then priority, then insertion."""

    def __dealloc__(self):
        free(self._heap)

    cdef int push(self, int64_t time_ns, int priority, int32_t kind, int32_t replica, int64_t payload) except -1 nogil:
        if self.size == self._room:
            grow(&self._heap, &self._room, sizeof(Event), 64)
        cdef Event event
        event.time_ns = time_ns
        event.order = (<int64_t>priority << 48) | self._sequence
        event.kind = kind
        event.replica = replica
        event.payload = payload
        self._sequence += 1
        self.size += 1
        sift_up(self._heap, NULL, self.size - 1, event)
        return 0

    cdef Event pop(self) noexcept nogil:
        cdef Event first = self._heap[0]
        self.size -= 1
        if self.size > 0:
            sift_down(self._heap, NULL, self.size, 0, self._heap[self.size])
        return first

    cdef int64_t last_ns(self, int32_t kind, int32_t replica) noexcept nogil:
        cdef int64_t last_ns = -1, i
        for i in range(self.size):
            if self._heap[i].kind == kind and self._heap[i].replica == replica:
                last_ns = max(last_ns, self._heap[i].time_ns)
        return last_ns

    cdef void clear(self) noexcept nogil:
        self.size = 0
        self._sequence = 0

    cpdef int check(self) except -1 nogil:
        return 0 if in_order(self._heap, self.size) else broken("EventQueue: an event stands before its parent")

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
