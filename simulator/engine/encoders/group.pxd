"""The replicas that encode for the requests of one gateway, and who chooses among them."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.gateway.gateway cimport Gateway
from simulator.routing.base cimport Router
from simulator.signals.view cimport View


@cython.final
cdef class Group:
    cdef readonly Gateway gateway
    cdef readonly Router router
    cdef readonly View view             # its accounts are of jobs that have not come yet
    cdef int32_t* _places               # [replica that encodes] its number in the view; -1: it is not there

    # The replica for a job, which is in its account from now on; and out of it.
    cdef int32_t send(self, int32_t job, int32_t embeddings, int64_t now_ns) except -1 nogil
    cdef int left(self, int32_t job, int32_t replica, int32_t embeddings, int64_t now_ns) except -1 nogil
