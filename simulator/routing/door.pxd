"""The check of a router's answer, at each place that asks one."""
from libc.stdint cimport int32_t, int64_t

from simulator.routing.base cimport Router


# Router.route, whose answer is -1 or a replica of its view that can be routed to. BadAnswer: it is neither.
cdef int32_t ask(Router router, int32_t row, int64_t now_ns) except -2 nogil
