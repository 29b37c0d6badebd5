"""The fields of a request that a policy written in Python may read."""
from libc.stdint cimport int32_t

from simulator.domain.request cimport Demand, Request


cdef class RequestView:
    cdef readonly int32_t row           # of the workload
    cdef const Request* _requests       # [row] borrowed, like _demands
    cdef const Demand* _demands
    cdef object _labels                 # Workload.labels
    cdef object _owners                 # the arrays these pointers borrow from
