"""Requests on their way to the waiting queues of replicas that do not see each other, in order of each replica."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.heap cimport RowHeap
from simulator.engine.fleet.fleet cimport Fleet, ReplicaEntry


# Return the time from dispatch to the waiting queue of a replica, behind its front end, ns.
cdef inline int64_t queue_delay_ns(const ReplicaEntry* entry, int32_t prompt_tokens) noexcept nogil:
    cdef double exact_ns = entry.queue_base_ns + entry.queue_token_ns * prompt_tokens
    if entry.resolution_ns > 0:
        return <int64_t>(exact_ns / entry.resolution_ns) * entry.resolution_ns
    return round_half_up(exact_ns)


@cython.final
cdef class Delayed:
    cdef Fleet _fleet
    cdef RowHeap* _heaps                # [replica] its requests by arrival at the queue; number: see `add`
    cdef int64_t* _left_ns              # [replica] last arrival at the queue of a request that left there; 0: none

    # A request was sent to a replica at this instant, later than all before it, which are delivered if they are due.
    cdef int add(self, int32_t row, int32_t index, int64_t now_ns) except -1 nogil

    # Replicas first .. last - 1 take in the requests that reach their queues before an instant, or at it without delay.
    cdef int deliver(self, int32_t first, int32_t last, int64_t until_ns) except -1 nogil

    cdef int _deliver(self, int32_t index, int64_t until_ns) except -1 nogil

    # Return when the next request reaches a queue of replicas first .. last - 1; NEVER_NS: none is on its way.
    cdef int64_t next_ns(self, int32_t first, int32_t last) noexcept nogil

    # Return when the last request reached a queue that left there, as one that is too long; 0: none.
    cdef int64_t left_ns(self) noexcept nogil

    # Let the events of the fleet deliver the requests that are still on their way.
    cdef int leave_to_events(self) except -1 nogil
