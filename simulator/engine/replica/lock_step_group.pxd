"""A clock that several replicas share: their iterations begin and end together."""
from libc.stdint cimport int32_t, int64_t

from simulator.latency.base cimport LatencyModel


cdef class LockStepGroup:
    cdef readonly int64_t wake_ns       # when its replicas must act next; NEVER_NS: they sleep
    cdef readonly bint has_ended        # see end_due(): at wake_ns, and the next step has not begun
    cdef readonly bint is_halted        # the replicas are halted, see halt()

    # Advance all its replicas; see Replica.advance and Replica.end_due.
    cdef int advance(self, int64_t until_ns, int64_t horizon_ns) except -1 nogil
    cdef int end_due(self) except -1 nogil

    # A request has entered the waiting queue of the replica of this index. forget: it left before it was scheduled.
    cdef int arrive(self, int32_t index, int32_t row, int64_t now_ns) except -1 nogil
    cdef void forget(self, int32_t index, int32_t row) noexcept nogil

    # Drop the plan after the iteration in progress.
    cdef void cut(self, int64_t now_ns) noexcept nogil

    # A change may let the replicas go on if nothing is in flight.
    cdef void rouse(self, int64_t now_ns) noexcept nogil

    # A KV transfer to a rank, or from it, ends at `done_ns`.
    cdef void expect(self, int64_t done_ns) noexcept nogil

    # halt all replicas; resume them; discard their batches in flight: as in Replica.
    cdef int halt(self, int64_t now_ns) except -1 nogil
    cdef int resume(self, int64_t since_ns, int64_t now_ns) except -1 nogil
    cdef void abandon(self) noexcept nogil

    # Return the number of steps begun by now, including steps of dummy batches alone.
    cdef int64_t num_begun(self, int64_t now_ns) noexcept nogil

    # Steps that begin from now on take as long as this model says.
    cdef int set_latency(self, LatencyModel latency) except -1
