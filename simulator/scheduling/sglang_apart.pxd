"""What SGLang's scheduler does where prompts are computed by some replicas, and others go on with them.

A decode replica gives pages to a request before its prompt is computed anywhere, computes no prompt itself, and keeps
those that it retracts in host memory. A prefill replica has no running batch: who has its token waits, with its pages,
until they have been sent.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.core.row_list cimport RowList
from simulator.domain.iteration cimport Batch
from simulator.scheduling.sglang_running cimport SglangRunning


cdef enum Role:                 # of the replica
    WHOLE = 0                   # it computes prompts and goes on with them
    PREFILL = 1
    DECODE = 2


cdef class SglangApart(SglangRunning):
    cdef Role _role
    cdef RowList _loaded                # of held ones, slots whose KV is here and who have no place yet, in order
    cdef RowList _merging               # and those who join the running batch when the next one is formed
    cdef RowList _gone                  # rows that have left the running batch since the last pass, which counted them
    cdef bint _has_resumed              # retracted ones, since the last pass
    cdef bint _is_disordered            # somebody was retracted: `waiting` has them in front again once it is sorted

    # Take what kind of replica this is from the tier that it was given.
    cdef void _take_role(self) noexcept

    # A pass of a decode replica: reserve pages, let those join whose KV has come, decode.
    cdef int _schedule_decodes(self, Batch* batch) except -1 nogil

    cdef int _look(self) except -1 nogil
    cdef int _list_loaded(self) except -1 nogil
    cdef int32_t _first_loaded(self) noexcept nogil
    cdef int _resume(self) except -1 nogil
    cdef int _preallocate(self, int64_t now_ns) except -1 nogil
    cdef bint _reserve_for(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef bint _has_retracted(self) noexcept nogil
    cdef bint _has_place(self) noexcept nogil
    cdef int64_t _allocatable(self, int64_t retractable) noexcept nogil
    cdef int64_t _retractable(self) noexcept nogil
    cdef int64_t _longest(self, int32_t row) noexcept nogil
