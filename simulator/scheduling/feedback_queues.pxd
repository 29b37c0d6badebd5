"""Queues in which requests sink by the time that they have spent in service; see feedback_queues.pyx."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.core.index_heap cimport IndexHeap
from simulator.scheduling.ranked cimport RequestRanking

cdef enum:
    LAST_QUEUE = 62             # nobody sinks deeper


cdef struct Progress:
    int64_t since_ns            # it is in service, or waits, since then
    int64_t spent_ns            # of the quantum of its queue, before that
    int8_t queue


cdef class FeedbackQueues(RequestRanking):
    cdef Progress* progress             # [row]; of those that came
    cdef IndexHeap longest              # those that wait, the longest first; without those that are at the very
                                        # beginning, who cannot rise
    cdef int64_t[LAST_QUEUE + 1] quanta_ns

    # One comes, or begins anew: it joins the first queue whose quantum so much service fits in.
    cdef void join(self, int32_t row, int64_t now_ns, double service_ns) noexcept nogil

    # Where one that is in service is by now; `note` it, since it leaves service.
    cdef Progress at(self, int32_t row, int64_t now_ns) noexcept nogil
    cdef void note(self, int32_t row, int64_t now_ns) noexcept nogil

    # One that has waited since then, or longer; -1: there is none.
    cdef int32_t starving(self, int64_t since_ns) noexcept nogil
