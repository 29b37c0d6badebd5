"""Prefill legs at replicas that do either leg: their statuses do not separate prefill legs from decodes.

An instance of Llumnix counts its decodes itself: waiting and running requests with max_tokens > 1; a prefill leg has
1. Source: llumnix-project/llumnix at 8a693b4, the status collector of its engine.
"""
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
cimport cython

from simulator.domain.request cimport RUNNING, WAITING, Request


@cython.final
cdef class LegCounts(Dispatches):
    """How many prefill legs replicas have.

    num_replicas, num_rows : replicas and requests there are. legs : NumPy array, state of prefill legs.
    """

    def __init__(self, int32_t num_replicas, int32_t num_rows, legs):
        cdef const Request[::1] rows = legs
        self._owner = legs
        if len(legs):
            self._legs = &rows[0]
        self.seen = <LegCount*>calloc(num_replicas, sizeof(LegCount))
        self.pushed = <LegCount*>calloc(num_replicas, sizeof(LegCount))
        if self.seen == NULL or self.pushed == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.seen)
        free(self.pushed)

    cdef int sent(self, int32_t row, int32_t replica) except -1 nogil:
        self.insert(row, replica)
        return 0

    cdef void left(self, int32_t row, int32_t replica) noexcept nogil:
        cdef int32_t index = self.find(row, replica)
        if index >= 0:
            self.drop(index)

    cdef void count(self) noexcept nogil:
        cdef int32_t replica, index
        cdef const Request* leg
        for replica in range(self._num_replicas):
            self.seen[replica].requests, self.seen[replica].tokens = 0, 0
            index = self.first_of_replica[replica]
            while index >= 0:
                leg = &self._legs[self.items[index].row]
                index = self.items[index].next_of_replica
                if leg.status == RUNNING or (leg.status == WAITING and leg.enqueued_ns >= 0):
                    self.seen[replica].requests += 1
                    self.seen[replica].tokens += leg.prompt_tokens

    cdef void push(self) noexcept nogil:
        memcpy(self.pushed, self.seen, self._num_replicas * sizeof(LegCount))

    # The face for tests.

    def note_sent(self, row, replica):
        """Note that a leg was sent."""
        self.sent(row, replica)

    def note_left(self, row, replica):
        """Note that it has left."""
        self.left(row, replica)

    def counted(self):
        """Return (requests, tokens) that each replica has now."""
        self.count()
        return [(self.seen[i].requests, self.seen[i].tokens) for i in range(self._num_replicas)]
