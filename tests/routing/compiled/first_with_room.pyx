# cython: language_level=3
"""A router and a scorer of one's own, compiled: the documented example.

    cythonize -i first_with_room.pyx        # beside the experiment; the simulator's .pxd files are installed with it

    [cluster.routing]
    policy = "first_with_room:FirstWithRoom"
    max_in_flight = 16
"""
from libc.stdint cimport int32_t, int64_t
from typing import Annotated

import msgspec

from simulator.routing.base cimport Router
from simulator.routing.scoring.base cimport Scorer


class FirstWithRoomParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first replica with room gets the request, so that the last ones can sleep."""

    max_in_flight: Annotated[int, msgspec.Meta(ge=1, description="requests that a replica takes")] = 8


cdef class FirstWithRoom(Router):
    """One replica is filled before the next; without room anywhere a request is refused."""

    Parameters = FirstWithRoomParameters

    cdef int32_t max_in_flight

    def __init__(self, parameters, context):
        self.max_in_flight = parameters.max_in_flight
        self.reads_state = True                     # the accounts are to be up to date when `route` is asked

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        cdef int32_t i
        for i in range(self.num_replicas):
            if self.view.accounts[i].is_routable and self.view.accounts[i].in_flight < self.max_in_flight:
                return i
        return -1


cdef class FewPreemptions(Scorer):
    """1 / (1 + preemptions so far); the router `weighted` finds it as "first_with_room:FewPreemptions"."""

    Parameters = None

    def __init__(self, parameters, context):
        self.view.wants_counts = True               # `preemptions` is one of the counts

    cdef int note(self, int32_t replica, bint is_open) except -1 nogil:
        self.values[replica] = 1.0 / (1.0 + self.view.states[replica].preemptions)
        return 0
