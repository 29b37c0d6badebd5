"""Requests that SGLang's scheduler has not read from its socket.

With --scheduler-recv-interval N > 1 a pass of the scheduler adds the weight of the batch before to a count, and reads
its socket when the count reaches N, which sets it to 0: 1000 for a batch with prompts, 1 for one of decodes or none.
Source: sglang 0.5.9, managers/scheduler_recv_skipper.py; 0.5.23, managers/scheduler_components/recv_skipper.py; the
weights: environ.py, SGLANG_SCHEDULER_RECV_SKIPPER_WEIGHT_*. A server without work makes passes all the time, so that it
reads at once.
"""
from libc.stdlib cimport free
cimport cython

from simulator.core.row_list cimport add_row

cdef enum:
    WEIGHT_OF_PROMPTS = 1000


@cython.final
cdef class SglangInbox:
    """See sglang_inbox.pxd.

    interval : scheduler_recv_interval.
    """

    def __init__(self, int64_t interval, WaitingQueue waiting):
        self._interval, self._waiting, self.is_on = interval, waiting, interval > 1

    def __dealloc__(self):
        free(self.unread.rows)

    cdef int add(self, int32_t row) except -1 nogil:
        return add_row(&self.unread, row)

    cdef int hide(self) except -1 nogil:
        cdef int32_t i, kept = 0
        for i in range(self.unread.size):
            if self._waiting.remove(self.unread.rows[i]) >= 0:
                self.unread.rows[kept] = self.unread.rows[i]
                kept += 1
        self.unread.size = kept
        return 0

    cdef int show(self) except -1 nogil:
        cdef int32_t i
        for i in range(self.unread.size):
            self._waiting.push(self.unread.rows[i])
        return 0

    cdef bint reads(self, bint had_prompts) noexcept nogil:
        self.count += WEIGHT_OF_PROMPTS if had_prompts else 1
        return self.count >= self._interval

    cdef void repeat(self, int32_t count) noexcept nogil:
        self.count = (self.count + count) % self._interval
