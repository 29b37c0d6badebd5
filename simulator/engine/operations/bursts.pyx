"""Requests that wait at a gateway for others of a window, with which its router places them."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.fleet.events cimport ROUTE
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.gateway.stage_base cimport Stage
from simulator.engine.operations.base cimport Operation
from simulator.routing.instances.base cimport Assignment

import numpy as np


@cython.final
cdef class WindowStage(Stage):
    """The windows of one gateway, one for each instance.

    scorers : of the router of each instance, those that place the requests of a window; the first gives its length.
    assignment : of requests to instances; None: there is one.
    """

    cdef Fleet _fleet
    cdef void* _gateway             # Gateway, borrowed: it refers to this stage
    cdef Assignment _assignment
    cdef list _scorers
    cdef int64_t _window_ns
    cdef int64_t[::1] _ends_ns      # [instance] of the last window that began; -1: none did

    def __init__(self, Fleet fleet, Gateway gateway, scorers, Assignment assignment):
        self._fleet, self._gateway, self._scorers, self._assignment = fleet, <void*>gateway, scorers, assignment
        self._window_ns = round(scorers[0][0].parameters.window_s * 1e9)
        self._ends_ns = np.full(len(scorers), -1, np.int64)

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t instance = 0 if self._assignment is None else self._assignment.of(row)
        if now_ns > self._ends_ns[instance]:
            self._ends_ns[instance] = now_ns + self._window_ns
        with gil:
            for scorer in self._scorers[instance]:
                scorer.wait(row)
        self._fleet.events.push(self._ends_ns[instance] + (<Gateway>self._gateway).routing_ns, ROUTE, ROUTE,
                                (<Gateway>self._gateway).index, row)
        return True


@cython.final
cdef class Windows(Operation):
    """The windows of all gateways with a router that places requests together."""

    def __init__(self, Fleet fleet, gateways, plan):
        cdef Gateway gateway
        for gateway in gateways:
            routers = getattr(gateway.router, "routers", [gateway.router])
            scorers = [[each for each in getattr(router, "scorers", ()) if hasattr(each, "wait")] for router in routers]
            if scorers[0]:
                gateway.hold_back(WindowStage(fleet, gateway, scorers, getattr(gateway.router, "assignment", None)))

    def report(self, run):
        """See Operation; the times are in the journeys."""
