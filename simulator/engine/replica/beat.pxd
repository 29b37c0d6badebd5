"""A clock that several replicas share: their iterations begin and end together."""
from libc.stdint cimport int32_t, int64_t

from simulator.latency.base cimport LatencyModel


cdef class Beat:
    cdef readonly int64_t wake_ns       # when its replicas must act next; NEVER_NS: they sleep
    cdef readonly bint has_ended        # see end_due(): at wake_ns, and the next step has not begun
    cdef readonly bint is_halted        # they stand still, see halt()

    # For all of them what Replica.advance is for one that has a clock of its own.
    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil
    cdef int end_due(self) except -1 nogil

    # A request has entered the waiting queue of the replica of this index; it left it again before it was scheduled.
    cdef int arrive(self, int32_t index, int32_t row, int64_t now_ns) except -1 nogil
    cdef void forget(self, int32_t index, int32_t row) noexcept nogil

    # What comes after the iteration in progress is not planned yet.
    cdef void cut(self, int64_t now_ns) noexcept nogil

    # What was changed may let them go on if nothing is in flight.
    cdef void rouse(self, int64_t now_ns) noexcept nogil

    # What is on its way to a rank, or read from it, is done at `done_ns`.
    cdef void expect(self, int64_t done_ns) noexcept nogil

    # They stand still together; they go on; what was in flight comes to nothing. Likewise Replica.halt and so on.
    cdef int halt(self, int64_t now_ns) except -1 nogil
    cdef int resume(self, int64_t since_ns, int64_t now_ns) except -1 nogil
    cdef void abandon(self) noexcept nogil

    # Steps that have begun by now, those of dummies alone too.
    cdef int64_t num_begun(self, int64_t now_ns) noexcept nogil

    # Steps that begin from now on take as long as this model says.
    cdef int set_latency(self, LatencyModel latency) except -1
