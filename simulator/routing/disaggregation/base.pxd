"""Base class of deciders: whether the prompt of a request is computed on a prefill replica."""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.request cimport Demand, Request
from simulator.signals.view cimport View


cdef class Decider:
    cdef readonly bint looks_at_prefill     # it must know which prefill replica would get the request; set in __init__
    cdef readonly View prefill          # replicas for prefill legs
    cdef readonly View decode           # replicas for decode legs, or all
    cdef const Request* requests        # [row] of the workload, borrowed, like demands
    cdef const Demand* demands
    cdef object _owners                 # the arrays these pointers borrow from

    # Does a prefill replica compute the prompt of `row`? `prefill`, `decode`: the replicas of the two legs, as numbered
    # in the views; -1: not chosen yet, or there is none.
    cdef bint splits(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil
