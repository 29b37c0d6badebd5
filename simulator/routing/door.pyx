"""The refusal of a router's answer: a compiled router may return any number."""
from simulator.errors import BadAnswer


cdef int32_t refuse_answer(Router router, int32_t replica) except -2 nogil:
    with gil:
        raise BadAnswer(router, "route", (
            f"-1 or the index of one of {router.num_replicas} replicas that can be routed to"), replica)
