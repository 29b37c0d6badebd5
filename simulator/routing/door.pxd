"""The check of a router's answer, at each place that calls one: the engine uses it as an index."""
from libc.stdint cimport int32_t, int64_t, uint32_t

from simulator.routing.base cimport Router


cdef int32_t refuse_answer(Router router, int32_t replica) except -2 nogil      # BadAnswer


# Router.route where the view does not show which replicas can be routed to: -1 or any replica of its view.
cdef inline int32_t ask_any(Router router, int32_t row, int64_t now_ns) except -2 nogil:
    cdef int32_t replica = router.route(row, now_ns)
    return replica if -1 <= replica < router.num_replicas else refuse_answer(router, replica)


# Router.route where the answer must be -1 or a replica of its view that can be routed to. BadAnswer: otherwise.
cdef inline int32_t ask(Router router, int32_t row, int64_t now_ns) except -2 nogil:
    cdef int32_t replica = router.route(row, now_ns)
    if <uint32_t>replica < <uint32_t>router.num_replicas and router.view.accounts[replica].is_routable:
        return replica
    return -1 if replica == -1 else refuse_answer(router, replica)
