"""The view of one instance of a gateway: shared reports of replicas, and an account of its own."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.signals.view cimport View


@cython.final
cdef class InstanceView(View):
    cdef View _shared                   # the view of the gateway
    cdef list _siblings                 # InstanceView of each instance
    cdef void* _next                    # the next sibling in a ring, borrowed
    cdef int32_t* _num_barred           # [replica] reasons for which this instance alone sends it no requests

    # Note in the views of all instances which replicas have changed since the last look.
    cdef void _tell_siblings(self) noexcept nogil

    # Update the facts of a replica's account that do not depend on requests: it opened, or closed. bar: add `change` to
    # the reasons of this instance. Both return whether requests may be sent there now and not before, or the reverse.
    cdef bint refresh(self, int32_t replica) noexcept nogil
    cdef bint bar(self, int32_t replica, int32_t change) noexcept nogil
