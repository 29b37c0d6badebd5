"""KV on the way between a replica's blocks and its tier."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport Event, EventQueue


@cython.final
cdef class Transfers:
    """What is under way at one replica; of equal ends the first begun goes first."""

    def __cinit__(self):
        self._queue = EventQueue()

    def keep_log(self):
        """Note what happens from now on."""
        self._log = []

    def take_log(self):
        """Return what happened since it was last asked, (what, row, tokens); see `tell`."""
        told, self._log = self._log, []
        return told

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
