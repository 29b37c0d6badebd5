"""KV transfers between a replica's blocks and its tier; see transfers.pxd."""
from libc.stdlib cimport free, malloc
cimport cython

from simulator.core.errors cimport out_of_memory


@cython.final
cdef class Transfers:
    """Transfers of one replica; of equal ends, the first begun goes first."""

    def __cinit__(self):
        self._queue = EventQueue()

    def __dealloc__(self):
        free(self._polled)

    def keep_log(self):
        """Log events from now on."""
        self._log = []

    def take_log(self):
        """Return the logged events since the last call, (event, row, tokens)."""
        log, self._log = self._log, []
        return log

    cdef int _write_down(self, const char* what, int32_t row, int64_t tokens) except -1 nogil:
        with gil:
            self._log.append((what.decode(), row, tokens))
        return 0

    cdef int32_t take(self, int64_t now_ns, int32_t* kind) noexcept nogil:
        cdef Event done
        if self._queue.next_time() > now_ns:
            return -1
        done = self._queue.pop()
        kind[0] = done.kind
        return done.replica

    cdef int64_t _poll(self, int64_t now_ns) except -1 nogil:
        while self._queue.next_time() <= now_ns:
            if self.num_polled - self._num_taken == self._room:
                self._grow()
            self._polled[self.num_polled & (self._room - 1)] = self._queue.pop()
            self.num_polled += 1
        return self.num_polled

    cdef int _grow(self) except -1 nogil:
        cdef int64_t room = max(2 * self._room, 8), i
        cdef Event* after = <Event*>malloc(room * sizeof(Event))
        if after == NULL:
            return out_of_memory()
        for i in range(self._num_taken, self.num_polled):
            after[i & (room - 1)] = self._polled[i & (self._room - 1)]
        free(self._polled)
        self._polled, self._room = after, room
        return 0

    cdef int32_t take_polled(self, int64_t num_polled, int32_t* kind) noexcept nogil:
        cdef const Event* seen
        if self._num_taken >= num_polled:
            return -1
        seen = &self._polled[self._num_taken & (self._room - 1)]
        self._num_taken += 1
        kind[0] = seen.kind
        return seen.replica
