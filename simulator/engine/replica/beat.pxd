"""A clock that several replicas share: their iterations begin and end together."""
from libc.stdint cimport int32_t, int64_t


cdef class Beat:
    cdef readonly int64_t wake_ns       # when its replicas must act next; NEVER_NS: they sleep

    # For all of them what Replica.advance is for one that has a clock of its own.
    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil

    # A request has entered the waiting queue of the replica of this index; it left it again before it was scheduled.
    cdef int arrive(self, int32_t index, int32_t row, int64_t now_ns) except -1 nogil
    cdef void forget(self, int32_t index, int32_t row) noexcept nogil

    # What comes after the iteration in progress is not planned yet.
    cdef void cut(self, int64_t now_ns) noexcept nogil

    # What was changed may let them go on if nothing is in flight.
    cdef void rouse(self, int64_t now_ns) noexcept nogil
