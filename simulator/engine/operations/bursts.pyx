"""Requests that wait at a gateway for others of a window, with which its router places them."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.fleet.events cimport ROUTE
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.gateway.stage_base cimport Stage
from simulator.engine.operations.base cimport Operation


@cython.final
cdef class WindowStage(Stage):
    """The window of one gateway.

    scorers : of its router that place the requests of a window; the first gives its length.
    """

    cdef Fleet _fleet
    cdef void* _gateway             # Gateway, borrowed: it refers to this stage
    cdef list _scorers
    cdef int64_t _window_ns, _end_ns        # of the last window that began; -1: none did

    def __init__(self, Fleet fleet, Gateway gateway, scorers):
        self._fleet, self._gateway, self._scorers = fleet, <void*>gateway, scorers
        self._window_ns, self._end_ns = round(scorers[0].parameters.window_s * 1e9), -1

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        if now_ns > self._end_ns:
            self._end_ns = now_ns + self._window_ns
        with gil:
            for scorer in self._scorers:
                scorer.wait(row)
        self._fleet.events.push(self._end_ns + (<Gateway>self._gateway).routing_ns, ROUTE, ROUTE,
                                (<Gateway>self._gateway).index, row)
        return True


@cython.final
cdef class Windows(Operation):
    """The windows of all gateways with a router that places requests together."""

    def __init__(self, Fleet fleet, gateways, plan):
        cdef Gateway gateway
        for gateway in gateways:
            scorers = [each for each in getattr(gateway.router, "scorers", ()) if hasattr(each, "wait")]
            if scorers:
                gateway.hold_back(WindowStage(fleet, gateway, scorers))

    def report(self, run):
        """See Operation; the times are in the journeys."""
