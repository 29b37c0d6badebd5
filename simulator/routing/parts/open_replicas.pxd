"""The replicas that can be routed to, side by side."""
cimport cython
from libc.stdint cimport int32_t

from simulator.signals.view cimport View


@cython.final
cdef class OpenReplicas:
    cdef View view
    cdef int32_t* at            # [size] open replicas, in order of their number
    cdef int32_t* _place        # [replica] where it is in `at`; -1: it is closed
    cdef readonly int32_t size

    # Take in what changed in the view since the last time, and forget those changes: for a router that has no other
    # use for them.
    cdef void refresh(self) noexcept nogil

    # Raise RuntimeError if the list, just refreshed, is not that of the open replicas.
    cpdef int check(self) except -1 nogil
