"""Base class of routers: a router chooses the replica for a request."""
from libc.stdint cimport int32_t, int64_t

from simulator.core.draws cimport Draws
from simulator.domain.request cimport Demand, Request
from simulator.kv.content cimport Content
from simulator.signals.view cimport View


cdef class Router:
    cdef readonly View view             # its replicas; None only where there are none
    cdef readonly int32_t num_replicas
    cdef readonly bint reads_state      # it looks at replicas, or is notified when requests leave; set in __init__
    cdef readonly bint has_scores       # `score` gives the numbers it decides by, the highest wins
    cdef const double* scored           # [num_replicas] the scores of the last `route`; NULL: `score` computes them
    cdef const Request* requests        # [row] of the workload, borrowed, like demands
    cdef const Demand* demands
    cdef Content content                # of prompts: hashes of blocks
    cdef Draws draws                    # its own random stream
    cdef object _owners                 # the arrays these pointers borrow from

    # The replica for request `row` at `now_ns`; -1: none can take it.
    # Called once each time a request is to be sent somewhere.
    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil

    # Notifications: the request was sent to `replica`; it has left `replica`, for any reason; it moved; `replica` may
    # be routed to from now on; `replica` may not be routed to any more.
    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int left(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int moved(self, int32_t row, int32_t before, int32_t after, int64_t now_ns) except -1 nogil
    cdef int opened(self, int32_t replica, int64_t now_ns) except -1 nogil
    cdef int closed(self, int32_t replica, int64_t now_ns) except -1 nogil

    # Score all replicas for a request as `route` would, [num_replicas], without side effects; replicas that cannot be
    # routed to get -inf. For decision traces of routers without `scored`; by default minus the effective load.
    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil
