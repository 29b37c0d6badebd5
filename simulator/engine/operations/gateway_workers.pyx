"""Workers of gateways: decisions of routers that take time, a few at once."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.event_queue cimport Event
from simulator.domain.journey cimport ROLE_WHOLE
from simulator.domain.request cimport COMPLETED
from simulator.engine.fleet.events cimport ROUTE
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.gateway.stage_base cimport Stage
from simulator.engine.operations.base cimport Operation
from simulator.routing.instances.base cimport Assignment

import numpy as np


cdef int64_t DECIDED = <int64_t>1 << 32         # in the payload of a ROUTE event: a decision ends


cdef struct Instance:
    int32_t busy                # workers that decide
    int32_t first               # row of the first request that waits for a worker; -1: none waits
    int32_t last


@cython.final
cdef class WorkerStage(Stage):
    """The workers of one gateway, those of each instance by themselves.

    A worker chooses a replica as things are when its decision begins, and sends the request when the decision ends.

    fleet, gateway : of the cluster.
    assignment : of requests to instances.
    settings : (ns of a decision; further ns for each replica that may be routed to; workers of an instance).
    """

    cdef Fleet _fleet
    cdef void* _gateway             # Gateway, borrowed: it refers to this stage
    cdef Assignment _assignment
    cdef double _decision_ns, _replica_ns
    cdef int32_t _workers
    cdef Instance* _instances
    cdef int32_t[::1] _following    # [row] the next request that waits for a worker; -1: none
    cdef int32_t[::1] _chosen       # [row] replica that a decision in progress chose
    cdef int64_t[::1] _waits_since_ns, _begun_ns        # [row] in the line; of a decision in progress; -1: neither
    cdef int64_t[::1] _wait_ns, _decided_ns             # [row] sums over the decisions on a request
    cdef int64_t[::1] _first_ns, _last_ns               # [instance] first request, end of the last decision; -1: none
    cdef int64_t[::1] _decisions    # [instance] ended
    cdef readonly dict arrays       # name -> array, of the fields above

    def __init__(self, Fleet fleet, Gateway gateway, Assignment assignment, settings):
        rows, count = len(fleet.workload.requests), assignment.count
        self._fleet, self._gateway, self._assignment = fleet, <void*>gateway, assignment
        self._decision_ns, self._replica_ns, self._workers = settings
        self._instances = <Instance*>calloc(count, sizeof(Instance))
        if self._instances == NULL:
            raise MemoryError()
        for i in range(count):
            self._instances[<int32_t>i].first = -1
        self._following, self._chosen = np.full(rows, -1, np.int32), np.full(rows, -1, np.int32)
        of_rows = {name: np.full(rows, empty, np.int64) for name, empty in (
            ("waits_since_ns", -1), ("begun_ns", -1), ("wait_ns", 0), ("decided_ns", 0))}
        of_instances = {name: np.full(count, empty, np.int64) for name, empty in (
            ("first_ns", -1), ("last_ns", -1), ("decisions", 0))}
        self._waits_since_ns, self._begun_ns, self._wait_ns, self._decided_ns = of_rows.values()
        self._first_ns, self._last_ns, self._decisions = of_instances.values()
        self.arrays = of_rows | of_instances | {"instances": assignment.instances}

    def __dealloc__(self):
        free(self._instances)

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        self.join(row, now_ns)
        return True

    cdef int join(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Let a request in: a worker decides about it at once, or it waits in line."""
        cdef int32_t number = self._assignment.of(row)
        cdef Instance* instance = &self._instances[number]
        self._waits_since_ns[row] = now_ns
        if self._first_ns[number] < 0:
            self._first_ns[number] = now_ns
        if instance.busy < self._workers:
            return self._begin(instance, row, now_ns)
        self._following[row] = -1
        if instance.first < 0:
            instance.first = row
        else:
            self._following[instance.last] = row
        instance.last = row
        return 0

    cdef int forget(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef Instance* instance = &self._instances[self._assignment.of(row)]
        cdef int32_t before = -1, at = instance.first
        if self._waits_since_ns[row] < 0:
            return 0
        self._wait_ns[row] += now_ns - self._waits_since_ns[row]
        self._waits_since_ns[row] = -1
        while at != row:
            before, at = at, self._following[at]
        if before < 0:
            instance.first = self._following[row]
        else:
            self._following[before] = self._following[row]
        if instance.last == row:
            instance.last = before
        return 0

    cdef int end(self, int32_t row, int64_t now_ns) except -1 nogil:
        """End a decision: send its request, and begin the next decision."""
        cdef int32_t number = self._assignment.of(row), following
        cdef Instance* instance = &self._instances[number]
        instance.busy -= 1
        self._decisions[number] += 1
        self._last_ns[number] = now_ns
        self._decided_ns[row] += now_ns - self._begun_ns[row]
        self._begun_ns[row] = -1
        self._send(row, now_ns)
        while instance.first >= 0 and instance.busy < self._workers:
            following = instance.first
            instance.first = self._following[following]
            self._begin(instance, following, now_ns)
        return 0

    cdef int _begin(self, Instance* instance, int32_t row, int64_t now_ns) except -1 nogil:
        cdef double duration_ns = self._decision_ns + self._replica_ns * self._num_routable()
        self._wait_ns[row] += now_ns - self._waits_since_ns[row]
        self._waits_since_ns[row] = -1
        self._begun_ns[row] = now_ns
        instance.busy += 1
        self._chosen[row] = (<Gateway>self._gateway).choose(row, now_ns)
        return self._fleet.events.push(now_ns + max(<int64_t>(duration_ns + 0.5), 1), ROUTE, ROUTE,
                                       (<Gateway>self._gateway).index, row | DECIDED)

    cdef int _send(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Send a request to its replica; decide again if that was closed meanwhile."""
        cdef int32_t replica = self._chosen[row]
        if self._fleet.requests[row].status >= COMPLETED:
            return 0
        if replica < 0:
            return (<Gateway>self._gateway).turn_away(row, now_ns)
        if not (<Gateway>self._gateway).view.accounts[replica].is_routable:
            return self.join(row, now_ns)
        return (<Gateway>self._gateway).dispatch(row, replica, ROLE_WHOLE, now_ns)

    cdef int32_t _num_routable(self) noexcept nogil:
        cdef int32_t count = 0, i
        if self._replica_ns == 0:
            return 0
        for i in range((<Gateway>self._gateway).view.num_replicas):
            count += (<Gateway>self._gateway).view.accounts[i].is_routable
        return count


@cython.final
cdef class GatewayWorkers(Operation):
    """The workers of all gateways.

    fleet, gateways : of the cluster.
    assignments : Assignment of each gateway.
    settings : as `WorkerStage` takes them.
    """

    cdef readonly list stages       # WorkerStage, by gateway
    cdef void** _stages             # the same, borrowed
    cdef Fleet _fleet

    def __init__(self, Fleet fleet, gateways, assignments, settings):
        cdef Gateway gateway
        self.kinds = (ROUTE,)
        self.stages, self._fleet = [], fleet
        self._stages = <void**>calloc(len(gateways), sizeof(void*))
        if self._stages == NULL:
            raise MemoryError()
        for gateway, assignment in zip(gateways, assignments, strict=True):
            stage = WorkerStage(fleet, gateway, assignment, settings)
            gateway.hold_back(stage)
            self._stages[len(self.stages)] = <void*>(<WorkerStage>stage)
            self.stages.append(stage)

    def __dealloc__(self):
        free(self._stages)

    cdef int handle(self, const Event* event) except -1 nogil:
        cdef int32_t row = <int32_t>(event.payload & (DECIDED - 1))
        cdef void* stage = self._stages[event.replica]
        if event.payload & DECIDED:
            return (<WorkerStage>stage).end(row, event.time_ns)
        if self._fleet.requests[row].status >= COMPLETED:
            return 0
        return (<WorkerStage>stage).join(row, event.time_ns)        # no replica could take it before: decide again

    def report(self, run):
        """Add waits and decisions to the Run; those in progress end with it."""
        found = [stage.arrays for stage in self.stages]
        wait_ns, decided_ns = (sum(arrays[name] for arrays in found) for name in ("wait_ns", "decided_ns"))
        for arrays in found:
            waits, decides = arrays["waits_since_ns"] >= 0, arrays["begun_ns"] >= 0
            wait_ns[waits] += run.clock_ns - arrays["waits_since_ns"][waits]
            decided_ns[decides] += run.clock_ns - arrays["begun_ns"][decides]
        run.columns["gateway_wait_ns"], run.columns["gateway_decision_ns"] = wait_ns, decided_ns
        run.records["gateway_workers"] = [
            {name: arrays[name] for name in ("instances", "first_ns", "last_ns", "decisions")} for arrays in found]
