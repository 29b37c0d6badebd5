"""Queues in which requests sink by the time that they have spent in service; see feedback_queues.pyx."""
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t

from simulator.scheduling.ranked cimport RequestRanking

cdef enum:
    LAST_QUEUE = 62             # requests do not sink deeper


cdef struct Progress:
    int64_t since_ns            # start of the present time in service or in waiting
    int64_t spent_ns            # part of the quantum of its queue spent before that
    int8_t queue
    bint is_waiting


cdef struct Since:              # start of a wait; valid while the request's progress still has it
    int64_t since_ns
    int32_t row


cdef class FeedbackQueues(RequestRanking):
    cdef Progress* progress             # [row]; of requests that have arrived
    cdef Since* _since                  # [_num_since] from _first on, waits, longest first, without
                                        # requests at the start of the first queue, which cannot rise
    cdef int32_t _first, _num_since, _room
    cdef int64_t[LAST_QUEUE + 1] quanta_ns

    # A request arrives or restarts: it joins the first queue with a quantum of at least `service_ns`.
    cdef void join(self, int32_t row, int64_t now_ns, double service_ns) noexcept nogil

    # The progress of a request in service by now; `note` stores it when the request leaves service.
    cdef Progress at(self, int32_t row, int64_t now_ns) noexcept nogil
    cdef void note(self, int32_t row, int64_t now_ns) noexcept nogil

    # The queue of a request in service when last stored, and the end of its quantum; then the end in the next queue.
    cdef int32_t first_end(self, int32_t row, int64_t* until_ns) noexcept nogil

    cdef inline int64_t next_end(self, int32_t queue, int64_t until_ns) noexcept nogil:
        if queue >= LAST_QUEUE or self.quanta_ns[queue] > INT64_MAX - until_ns:
            return INT64_MAX
        return until_ns + self.quanta_ns[queue]

    # A request that has waited since `since_ns` or longer; -1: there is none.
    cdef int32_t starving(self, int64_t since_ns) noexcept nogil
    cdef bint _may_rise(self, const Since* it) noexcept nogil
    cdef int _line_up(self, int32_t row) except -1 nogil
    cdef void _forget_gone(self) noexcept nogil
