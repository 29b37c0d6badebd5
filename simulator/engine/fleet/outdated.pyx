"""Replicas that may have changed since they were last read."""
from libc.stdlib cimport calloc, free

from simulator.core.errors cimport broken


cdef class Outdated:
    """A list of some of `num_replicas` replicas, empty at first."""

    def __cinit__(self, int32_t num_replicas):
        self.listed = <int32_t*>calloc(num_replicas, sizeof(int32_t))
        self._is_listed = <int8_t*>calloc(num_replicas, sizeof(int8_t))
        self._due = WakeHeap(num_replicas)
        if self.listed == NULL or self._is_listed == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.listed)
        free(self._is_listed)

    cpdef int check(self) except -1 nogil:
        cdef int32_t i, count = 0
        self._due.check()
        for i in range(self._due.size):
            count += self._is_listed[i]
        for i in range(self.size):
            count -= self._is_listed[self.listed[i]]
        if count != 0:
            return broken("Outdated: a replica is flagged and not listed, or listed twice")
        return 0

    # For tests: note_act, keep, take.

    def note_act(self, replica):
        """Note that a replica acted."""
        self.note(replica)

    def keep(self, replica, due_ns):
        """Note when a replica that was read must be read again; None: when it acts."""
        self.keep_until(replica, NEVER_NS if due_ns is None else due_ns)

    def take(self, now_ns):
        """Return, in order, the replicas that must be read, and take them off the list."""
        self.collect(now_ns)
        found = sorted(self.listed[i] for i in range(self.size))
        self.clear()
        return found
