"""The encoder replicas for the requests of one gateway, and the router among them."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.gateway.gateway cimport Gateway
from simulator.routing.base cimport Router
from simulator.signals.view cimport View


@cython.final
cdef class Group:
    cdef readonly Gateway gateway
    cdef readonly int32_t region        # of its replicas, and of the requests; 0 where there are none
    cdef readonly Router router
    cdef readonly View view             # its accounts are of jobs with embeddings still to arrive
    cdef int32_t* _places               # [encoder replica] its number in the view; -1: not in it

    # send: choose the replica for a job, and add the job to its account. left: take the job out of the account.
    cdef int32_t send(self, int32_t job, int32_t embeddings, int64_t now_ns) except -1 nogil
    cdef int left(self, int32_t job, int32_t replica, int32_t embeddings, int64_t now_ns) except -1 nogil
