"""Continuous batching whose waiting queue and victims follow the keys of a policy; see ranked.pyx."""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport Demand, Request
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.in_order cimport InOrder
from simulator.scheduling.waiting_queue cimport Ranking


cdef class RequestRanking(Ranking):
    cdef const Request* requests        # of the workload, like demands
    cdef const Demand* demands
    cdef object _owners                 # the arrays these pointers borrow from


cdef class Ranked(InOrder):
    cdef int64_t _threshold             # longest chunk of a prompt, in tokens
    cdef Ranking _ranking               # of those who wait
    cdef bint _evicts_last_ranked       # the victim has the largest key; else it was admitted last
    cdef bint _outputs_are_prompts      # some prompt contains what another request generates

    # Order the waiting queue; the policy's __init__ ends with this.
    cdef int _rank_by(self, object context, Ranking ranking) except -1

    # A batch is about to be formed, nothing is in flight: keys may be brought up to date, and the budget set.
    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil

    # Who is next of those who wait, there are some; it is about to be admitted, and leaves the queue. It stays the same
    # one while nobody comes, leaves or is admitted.
    cdef int32_t _next_row(self) noexcept nogil
    cdef int _take(self, int32_t row) except -1 nogil

    cdef int _continue_one_by_one(self, Batch* batch) except -1 nogil
    cdef int _make_room(self, Batch* batch, int32_t slot, int64_t tokens) except -1 nogil
    cdef int32_t _victim(self) noexcept nogil
    cdef int _admit_waiting(self, Batch* batch) except -1 nogil
