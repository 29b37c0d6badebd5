"""Base class of admission policies: whether a request is let in."""
from libc.stdint cimport int32_t, int64_t

from simulator.admission.class_table cimport ClassTable
from simulator.domain.request cimport Demand, Request
from simulator.signals.view cimport View


cdef class Admission:
    cdef readonly View view             # the replicas behind the gate
    cdef readonly bint reads_state      # it looks at them, or is notified when requests leave; set in __init__
    cdef const Request* requests        # [row] of the workload, borrowed, like demands
    cdef const Demand* demands
    cdef readonly ClassTable classes    # priorities of the requests
    cdef object _owners                 # the arrays these pointers borrow from

    # Whether request `row` is let in at `now_ns`: 1 or 0. Called once per request.
    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil

    # Notifications on a request that was let in: it was sent to a replica; it has left, completed or not.
    cdef int sent(self, int32_t row, int64_t now_ns) except -1 nogil
    cdef int left(self, int32_t row, int64_t now_ns) except -1 nogil
