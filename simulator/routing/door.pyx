"""The check of a router's answer: a compiled router may return any number, which the engine takes for an index."""
from libc.stdint cimport int32_t, int64_t

from simulator.errors import BadAnswer
from simulator.routing.base cimport Router


cdef int32_t ask(Router router, int32_t row, int64_t now_ns) except -2 nogil:
    cdef int32_t replica = router.route(row, now_ns)
    if replica == -1 or (0 <= replica < router.num_replicas and router.view.accounts[replica].is_routable):
        return replica
    with gil:
        raise BadAnswer(router, "route", (
            f"-1 or the index of one of {router.num_replicas} replicas that can be routed to"), replica)
