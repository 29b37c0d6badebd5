"""Clients that send a failed request again, after a wait; or gateways that send it to another pool at once.

The request keeps its row and its arrival: times to first token and to the end are those that its user feels. An attempt
that is sent again is void: tokens of an earlier attempt do not count, and its KV remains in prefix caches alone.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport Event
from simulator.domain.journey cimport LOST, NO_CAUSE
from simulator.domain.request cimport COMPLETED, DROPPED, FAILED, REJECTED, TIMED_OUT, Demand, Request
from simulator.engine.fleet.events cimport ADMIT, ARRIVAL, ENQUEUE, FORWARD, ROUTE, TIME_OUT
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.operations.base cimport Operation
from simulator.engine.replica.delivery cimport NO_TOKEN_NS
from simulator.engine.replica.replica cimport Replica

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.engine.operations.retry_budget import RetryBudget

cdef enum:
    LOOK_AGAIN_NS = 1000000     # a halted replica does not say when it goes on


cdef inline int64_t in_flight_until(Replica replica, int32_t row, int64_t now_ns) noexcept nogil:
    """Return when tokens of a request that its preemption left in flight may be back; -1: none is in flight."""
    cdef int32_t tokens = replica.rank.scheduler.stale_tokens(row)
    if tokens == 0:
        return -1
    if replica.pipeline.num_in_flight == 0:             # their batch was dropped with a failure
        replica.rank.scheduler.settle_stale(row, tokens)
        return -1
    return min(max(replica.wake_ns, now_ns) + 1, now_ns + LOOK_AGAIN_NS)


@cython.final
cdef class ClientRetries(Operation):
    """The clients of a cluster, for requests that fail.

    It is the last operation that is notified of an end: a request that will be sent again has not ended, and the source
    of requests is not notified.

    fleet, gateways, plan : of the cluster.
    settings : domain.client_retry.ClientRetry; None: gateways send requests on, by `ways`.
    gateway_of : {code of a model label, -1 for none: index of its gateway}; no other request is sent again.
    ways : {code of a model label: (codes to try next, in order; failures after which that is done)}; None: clients
        send requests again.
    """

    cdef Fleet _fleet
    cdef list _gateways
    cdef dict _gateway_of
    cdef object _settings
    cdef object _ways
    cdef object _models         # [row] code of its model label at first; None: it stays
    cdef object _waits          # numpy.random.Generator
    cdef object _budget         # RetryBudget; None: no budget
    cdef object _attempts_array, _sent_array
    cdef int32_t[::1] _attempts         # [row] times that it was sent; 0 is 1 as well: it has not failed yet
    cdef int64_t[::1] _sent_ns          # [row] when it was sent last; -1: at its arrival
    cdef Demand[::1] _demands
    cdef bint _has_ways         # a request may be on its way to the router or to its replica for a while
    cdef readonly int64_t over_budget   # retries that were not sent

    def __init__(self, Fleet fleet, gateways, plan, settings, gateway_of, ways=None):
        cdef int64_t count = fleet.num_clients
        self.kinds = (ARRIVAL,)
        self._fleet, self._gateways, self._settings = fleet, list(gateways), settings
        self._gateway_of, self._ways = gateway_of, ways
        self._models = None if ways is None else fleet.workload.demands["model"].copy()
        self._waits = RandomStreams(plan.seed).generator("client retries")
        self._attempts_array, self._sent_array = np.ones(count, np.int32), np.full(count, -1, np.int64)
        self._attempts, self._sent_ns = self._attempts_array, self._sent_array
        self._demands = fleet.workload.demands
        front = plan.front
        self._has_ways = (front.admission_latency_ns + front.routing_latency_ns + front.patience_ns > 0
                          or any(fleet.entries[<int32_t>i].queue_base_ns + fleet.entries[<int32_t>i].queue_token_ns > 0
                                 for i in range(fleet.num_replicas)))
        if settings is not None and settings.budget_share is not None:
            self._budget = RetryBudget(settings, fleet.workload)

    cdef int start(self) except -1 nogil:
        with gil:                           # workers of gateways, and regions, if any, are there now
            self._has_ways |= any({ROUTE, FORWARD} & {*operation.kinds} for operation in self._fleet.operations)
        return 0

    # ---- the end of an attempt

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        if row >= self._fleet.num_clients or self._fleet.requests[row].status == COMPLETED:
            return 0
        with gil:
            return self._await_retry(row, now_ns)

    cdef int _await_retry(self, int32_t row, int64_t now_ns) except -1:
        retries, reason = self._attempts[row] - 1, self._reason(row)
        if self._ways is not None:
            following, on = self._ways.get(self._models[row], ((), ()))
            return self._await(row, now_ns) if retries < len(following) and reason in on else 0
        if retries >= self._settings.attempts or reason not in self._settings.on:
            return 0
        if self._gateway_of.get(self._demands[row].model, -1) < 0:
            return 0
        if self._budget is not None and not self._budget.spend(now_ns):
            self.over_budget += 1
            return 0
        return self._await(row, now_ns + self._settings.delay_ns(retries, self._waits.random()))

    cdef int _await(self, int32_t row, int64_t sent_ns) except -1:
        self._fleet.recorder.finished -= 1
        return self._fleet.events.push(sent_ns, ARRIVAL, ARRIVAL, 0, row)

    def _reason(self, int32_t row):
        """Return why an attempt failed, as settings name it; "": of another reason, for which all attempts fail."""
        cdef int8_t status = self._fleet.requests[row].status, cause = self._fleet.journeys[row].cause
        if status == TIMED_OUT:
            return "timeout"
        if cause == LOST:
            return "lost"
        if cause != NO_CAUSE:
            return "rejected" if status in (REJECTED, DROPPED, FAILED) else ""
        if status != REJECTED or self._fleet.requests[row].replica < 0:
            return ""
        return "rejected" if self._fits(row) else "too_long"

    cdef bint _fits(self, int32_t row) noexcept:
        """Return whether the prompt of a request that an engine refused fits there: else no queue was full."""
        cdef const Request* request = &self._fleet.requests[row]
        return request.prompt_tokens <= (
            <Replica>self._fleet.entries[request.replica].replica).scheduler.longest_prompt

    # ---- the next attempt

    cdef int handle(self, const Event* event) except -1 nogil:
        cdef int32_t row = <int32_t>event.payload
        cdef int64_t now_ns = event.time_ns, free_ns = self._under_way_until(row, now_ns)
        if free_ns > now_ns:
            return self._fleet.events.push(free_ns, ARRIVAL, ARRIVAL, 0, row)
        with gil:
            self._send(row, now_ns)
        return 0

    cdef int64_t _under_way_until(self, int32_t row, int64_t now_ns) noexcept nogil:
        """Return when nothing of an earlier attempt is under way any more; -1: nothing is now."""
        cdef const Event* events = self._fleet.events.top()
        cdef int32_t replica = self._fleet.requests[row].replica
        cdef int64_t until_ns = -1, i
        if self._has_ways:
            for i in range(self._fleet.events.size):
                if <int32_t>events[i].payload == row and events[i].kind in (ADMIT, ROUTE, FORWARD, ENQUEUE):
                    until_ns = max(until_ns, events[i].time_ns + 1)
        if replica < 0:
            return until_ns
        return max(until_ns, in_flight_until(<Replica>self._fleet.entries[replica].replica, row, now_ns))

    cdef int _send(self, int32_t row, int64_t now_ns) except -1:
        cdef Request* request = &self._fleet.requests[row]
        cdef Demand* demand = &self._demands[row]
        cdef int64_t before_ns = request.arrival_ns if self._sent_ns[row] < 0 else self._sent_ns[row]
        cdef int32_t index
        cdef Gateway gateway
        if self._ways is not None:
            demand.model, before_ns = self._ways[self._models[row]][0][self._attempts[row] - 1], now_ns
        index = self._gateway_of[demand.model]
        gateway = self._gateways[index]
        request.replica = request.enqueued_ns = request.scheduled_ns = request.first_token_ns = -1
        request.output_tokens = request.cached_tokens = 0
        self._fleet.gate.last_token_ns[row] = NO_TOKEN_NS
        self._fleet.journeys[row].cause = NO_CAUSE
        self._fleet.journeys[row].admitted_ns = self._fleet.journeys[row].dispatched_ns = -1
        self._attempts[row] += 1
        self._sent_ns[row] = now_ns
        if demand.deadline_ns >= 0:
            demand.deadline_ns = now_ns + (demand.deadline_ns - before_ns)
            self._fleet.events.push(
                max(demand.deadline_ns - gateway.shift_ns, now_ns), TIME_OUT, TIME_OUT, index, row)
        return gateway.arrive(row, now_ns)

    def report(self, run):
        """See Operation."""
        if self._ways is not None:
            run.columns["fallbacks"] = self._attempts_array - 1
            return
        run.columns["client_attempts"] = self._attempts_array
        run.columns["client_sent_ns"] = np.where(
            self._sent_array < 0, self._fleet.workload.requests["arrival_ns"][:len(self._sent_array)], self._sent_array)
        run.records["client_retries_over_budget"] = self.over_budget
