"""Queues in which requests sink by the time that they have spent in service; see feedback_queues.pyx."""
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t

from simulator.scheduling.ranked cimport RequestRanking

cdef enum:
    LAST_QUEUE = 62             # nobody sinks deeper


cdef struct Progress:
    int64_t since_ns            # it is in service, or waits, since then
    int64_t spent_ns            # of the quantum of its queue, before that
    int8_t queue
    bint is_waiting


cdef struct Since:              # who came to wait then; it has not risen and waits still, if its progress says so
    int64_t since_ns
    int32_t row


cdef class FeedbackQueues(RequestRanking):
    cdef Progress* progress             # [row]; of those that came
    cdef Since* _since                  # [_num_since] from _first on, who waits or did, longest first; without those at
                                        # the very beginning, who cannot rise
    cdef int32_t _first, _num_since, _room
    cdef int64_t[LAST_QUEUE + 1] quanta_ns

    # One comes, or begins anew: it joins the first queue whose quantum so much service fits in.
    cdef void join(self, int32_t row, int64_t now_ns, double service_ns) noexcept nogil

    # Where one that is in service is by now; `note` it, since it leaves service.
    cdef Progress at(self, int32_t row, int64_t now_ns) noexcept nogil
    cdef void note(self, int32_t row, int64_t now_ns) noexcept nogil

    # The queue of one that is in service, when it was noted last, and until when it stays there; then in the next one.
    cdef int32_t first_end(self, int32_t row, int64_t* until_ns) noexcept nogil

    cdef inline int64_t next_end(self, int32_t queue, int64_t until_ns) noexcept nogil:
        if queue >= LAST_QUEUE or self.quanta_ns[queue] > INT64_MAX - until_ns:
            return INT64_MAX
        return until_ns + self.quanta_ns[queue]

    # One that has waited since then, or longer; -1: there is none.
    cdef int32_t starving(self, int64_t since_ns) noexcept nogil
    cdef bint _may_rise(self, const Since* it) noexcept nogil
    cdef int _line_up(self, int32_t row) except -1 nogil
    cdef void _forget_gone(self) noexcept nogil
