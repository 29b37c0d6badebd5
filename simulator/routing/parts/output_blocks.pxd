"""Output blocks in a router's account of its replicas: one for each whole block of tokens streamed back."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.index_list cimport IndexLinks, IndexList
from simulator.domain.request cimport Demand
from simulator.routing.parts.live_blocks cimport LiveBlocks
from simulator.signals.output_counts cimport OutputCounts
from simulator.signals.view cimport View


@cython.final
cdef class OutputBlocks:
    cdef View _view
    cdef LiveBlocks _blocks             # to which output blocks are added
    cdef OutputCounts _counts
    cdef const Demand* _demands         # [row] borrowed
    cdef object _owner                  # of _demands
    cdef int32_t _num_replicas
    cdef IndexLinks _links              # of _live
    cdef IndexList* _live               # [replica] rows that it has

    # A replica has a request, which LiveBlocks has as well; it no longer has it. Before either is noted anywhere, and
    # before the blocks are read: note the output blocks of its requests, or of all replicas.
    cdef void sent(self, int32_t row, int32_t replica) noexcept nogil
    cdef void left(self, int32_t row, int32_t replica) noexcept nogil
    cdef int note(self, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int note_all(self, int64_t now_ns) except -1 nogil
    cdef int _count(self, int32_t replica) except -1 nogil
