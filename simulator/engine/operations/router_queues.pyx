"""Queues in front of the routers of gateways."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.domain.journey cimport QUEUE_FULL
from simulator.domain.request cimport REJECTED
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.gateway.stage_base cimport Stage
from simulator.engine.operations.base cimport Operation
from simulator.routing.instances.base cimport Assignment
from simulator.routing.queueing.base cimport GOES, REFUSED, RouterQueue


@cython.final
cdef class QueueStage(Stage):
    """The queues of one gateway, one for each instance.

    It routes each request itself, so that the account of the router has it when the next one comes.

    assignment : of requests to instances; None: there is one.
    """

    cdef void** _queues             # [instance] RouterQueue, borrowed from `RouterQueues`
    cdef int32_t _num_queues
    cdef Assignment _assignment
    cdef Fleet _fleet
    cdef void* _gateway             # Gateway, borrowed: it refers to this stage

    def __init__(self, queues, Assignment assignment, Fleet fleet, Gateway gateway):
        cdef RouterQueue queue
        self._assignment, self._fleet, self._gateway = assignment, fleet, <void*>gateway
        self._queues = <void**>calloc(len(queues), sizeof(void*))
        if self._queues == NULL:
            raise MemoryError()
        for queue in queues:
            self._queues[self._num_queues] = <void*>queue
            self._num_queues += 1

    def __dealloc__(self):
        free(self._queues)

    cdef inline void* _queue_of(self, int32_t row) noexcept nogil:
        return self._queues[0 if self._assignment is None else self._assignment.of(row)]

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int answer = (<RouterQueue>self._queue_of(row)).offer(row, now_ns)
        if answer == REFUSED:
            self._fleet.refuse(row, REJECTED, QUEUE_FULL, now_ns)
        elif answer == GOES:
            (<Gateway>self._gateway).route(row, now_ns)
        return True

    cdef int settle(self, int64_t now_ns) except -1 nogil:
        cdef int32_t row, i
        for i in range(self._num_queues):
            row = (<RouterQueue>self._queues[i]).next(now_ns)
            while row >= 0:
                (<Gateway>self._gateway).route(row, now_ns)
                row = (<RouterQueue>self._queues[i]).next(now_ns)
        return 0

    cdef int forget(self, int32_t row, int64_t now_ns) except -1 nogil:
        return (<RouterQueue>self._queue_of(row)).remove(row)


@cython.final
cdef class RouterQueues(Operation):
    """The queues of all gateways.

    fleet, gateways : of the cluster.
    make : class of a queue, called with `parameters`, a router and the workload.
    """

    cdef readonly list queues       # RouterQueue, by gateway and instance

    def __init__(self, Fleet fleet, gateways, make, parameters):
        cdef Gateway gateway
        self.queues = []
        fleet.departures.reports_prefills = True
        for gateway in gateways:
            routers = getattr(gateway.router, "routers", [gateway.router])
            queues = [make(parameters, router, fleet.workload) for router in routers]
            gateway.hold_back(QueueStage(queues, getattr(gateway.router, "assignment", None), fleet, gateway))
            self.queues += queues
