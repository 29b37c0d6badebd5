"""A view of replicas with known blocks of prompts in their caches."""
from libc.stdint cimport int32_t, int64_t

from simulator.signals.view cimport View


cdef class CachedView(View):
    """A plain view; `blocks` : [replica] leading cached blocks of any prompt."""

    cdef public object blocks

    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil:
        with gil:
            return self.blocks[replica]
