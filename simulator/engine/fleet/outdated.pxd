"""Replicas that may have changed since they were last read: those that acted, or are due to change.

Between two acts a replica changes at instants that are known when it is read, as iterations of its run end. So a look
costs time per changed replica, not per replica.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.wake_heap cimport WakeHeap


@cython.final
cdef class Outdated:
    cdef readonly int32_t size          # number of listed replicas
    cdef int32_t* listed                # [size] each once, in no special order
    cdef int8_t* _is_listed             # [replica]
    cdef WakeHeap _due                  # when each replica that is not listed must be

    # A replica acted, or was changed.
    cdef inline void note(self, int32_t replica) noexcept nogil:
        if not self._is_listed[replica]:
            self._is_listed[replica] = True
            self.listed[self.size] = replica
            self.size += 1

    # List also the replicas due at `now_ns` or earlier.
    cdef inline void collect(self, int64_t now_ns) noexcept nogil:
        while self._due.top_time() <= now_ns:
            self.note(self._due.top_index())
            self._due.set(self._due.top_index(), NEVER_NS)

    # A listed replica was read; nothing that was read changes before `due_ns` unless it acts.
    cdef inline void keep_until(self, int32_t replica, int64_t due_ns) noexcept nogil:
        if self._due.get(replica) != due_ns:
            self._due.set(replica, due_ns)

    # All listed replicas have been read.
    cdef inline void clear(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.size):
            self._is_listed[self.listed[i]] = False
        self.size = 0

    # Raise RuntimeError unless the list agrees with the flags.
    cpdef int check(self) except -1 nogil
