"""Queues in front of the routers of gateways."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.journey cimport QUEUE_FULL
from simulator.domain.request cimport REJECTED
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.gateway.stage_base cimport Stage
from simulator.engine.operations.base cimport Operation
from simulator.routing.queueing.base cimport GOES, REFUSED, RouterQueue


@cython.final
cdef class QueueStage(Stage):
    """The queue of one gateway.

    It routes each request itself, so that the account of the router has it when the next one comes.
    """

    cdef RouterQueue _queue
    cdef Fleet _fleet
    cdef void* _gateway             # Gateway, borrowed: it refers to this stage

    def __init__(self, RouterQueue queue, Fleet fleet, Gateway gateway):
        self._queue, self._fleet, self._gateway = queue, fleet, <void*>gateway

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int answer = self._queue.offer(row, now_ns)
        if answer == REFUSED:
            self._fleet.refuse(row, REJECTED, QUEUE_FULL, now_ns)
        elif answer == GOES:
            (<Gateway>self._gateway).route(row, now_ns)
        return True

    cdef int settle(self, int64_t now_ns) except -1 nogil:
        cdef int32_t row = self._queue.next(now_ns)
        while row >= 0:
            (<Gateway>self._gateway).route(row, now_ns)
            row = self._queue.next(now_ns)
        return 0

    cdef int forget(self, int32_t row) except -1 nogil:
        return self._queue.remove(row)


@cython.final
cdef class RouterQueues(Operation):
    """The queues of all gateways.

    fleet, gateways : of the cluster.
    make : class of the queue, called with `parameters`, a router and the workload.
    """

    cdef readonly list queues       # RouterQueue, by gateway

    def __init__(self, Fleet fleet, gateways, make, parameters):
        cdef Gateway gateway
        self.queues = []
        fleet.departures.reports_prefills = True
        for gateway in gateways:
            queue = make(parameters, gateway.router, fleet.workload)
            gateway.hold_back(QueueStage(queue, fleet, gateway))
            self.queues.append(queue)
