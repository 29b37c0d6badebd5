"""SGLang's scheduler with disaggregation: prefill replicas compute prompts, decode replicas generate.

A decode replica reserves pages for a request before its prompt is computed anywhere, computes no prompts, and keeps
the KV of retracted requests in host memory. A prefill replica has no running batch: a request with its first token
keeps its pages until they have been sent.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.core.row_list cimport RowList
from simulator.domain.iteration cimport Batch
from simulator.scheduling.sglang_running cimport SglangRunning


cdef enum Role:                 # role of the replica
    WHOLE = 0                   # it computes prompts and decodes them
    PREFILL = 1
    DECODE = 2


cdef class SglangDisaggregated(SglangRunning):
    cdef Role _role
    cdef RowList _loaded                # slots of held requests with arrived KV but no place yet, in order
    cdef RowList _merging               # slots of held requests that join the running batch when the next one is formed
    cdef RowList _gone                  # rows that left the running batch after the last pass, which counted them
    cdef bint _has_resumed              # _resume was called since the last pass
    cdef bint _is_disordered            # a request was retracted: `waiting` must be sorted, such requests in front

    # Set the role from the tier of the replica.
    cdef void _take_role(self) noexcept

    # A pass of a decode replica: reserve pages, let requests with arrived KV join the running batch, decode.
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
