"""Clients of a cluster with regions: answers from other regions take time, and so do requests to stop there.

The home region of a client has its gateway, to which the way takes no time. The client of a forwarded request gives up
by its own clock; the region learns of that one latency later, and has worked in vain until then. An answer or a refusal
reaches the client one latency after it left; an answer that comes at the deadline is in time. Only then does the client
send its next request, or the same one again.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.event_queue cimport Event
from simulator.domain.journey cimport LEG_ENDED, NO_CAUSE
from simulator.domain.request cimport COMPLETED, TIMED_OUT, Request
from simulator.domain.tables cimport ReplicaRow
from simulator.engine.fleet.events cimport ARRIVAL, TIME_OUT
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.operations.base cimport Operation
from simulator.engine.operations.regions cimport RegionForwarding, RegionStage
from simulator.engine.replica.replica cimport Replica
from simulator.engine.sources.base cimport Source

from functools import partial

import numpy as np

from simulator.domain import records
from simulator.engine.sources.late_tokens import LateTokens

cdef int64_t HEARD = <int64_t>1 << 32           # in the payload of a TIME_OUT event: an end reaches the client
cdef int64_t CANCELLED = <int64_t>1 << 33       # the client's giving up reaches the region

cdef enum:
    BEFORE_TIME_OUT = TIME_OUT - 1  # priority of ends, which reach the client before it gives up at that instant

cdef enum FarState:
    NOTHING_ON_WAY = 0
    END_ON_WAY = 1              # the request has ended, and its client does not know yet
    GAVE_UP = 2                 # the client has given up, and the region serves on
    WILL_SEND = 3               # as GAVE_UP, and the client will send the request again
    SENDS_AGAIN = 4             # as WILL_SEND, and it is time to do so


@cython.final
cdef class FarClients(Operation):
    """The clients of a cluster with regions.

    It is the last operation that is notified of an end.

    fleet, gateways : of the cluster.
    forwarding : RegionForwarding of the cluster.
    gateway_of : int32 (1 + labels of models,), index of the gateway of requests without a label, then of each label;
        -1: no pool serves it.
    clients : operation of clients that send failed requests again; None: they do not.
    """

    cdef Fleet _fleet
    cdef RegionForwarding _forwarding
    cdef Operation _clients
    cdef Source _source
    cdef void** _gateways           # Gateway, borrowed from `_owners`
    cdef list _owners
    cdef int32_t[::1] _gateway_of   # [code of a model label + 1]
    cdef int8_t[::1] _states        # [row] FarState
    cdef int64_t[::1] _next_ns      # [row] when that which is on the way arrives
    cdef int8_t[::1] _is_prompt     # [row] it ended with its prompt, and counts at the replica as a leg alone
    cdef int64_t _num_clients
    cdef bint _from_engine          # clients of the source count an answer from its last token

    def __init__(self, Fleet fleet, gateways, RegionForwarding forwarding, gateway_of, Operation clients):
        self.kinds = (TIME_OUT, *(clients.kinds if clients is not None else ()))
        self._fleet, self._forwarding, self._clients = fleet, forwarding, clients
        self._owners, self._gateway_of = list(gateways), gateway_of
        self._gateways = <void**>calloc(max(len(gateways), 1), sizeof(void*))
        if self._gateways == NULL:
            raise MemoryError()
        for i, gateway in enumerate(gateways):
            self._gateways[<int32_t>i] = <void*>gateway
        self._num_clients = fleet.num_clients
        self._states = np.zeros(self._num_clients, np.int8)
        self._next_ns = np.full(self._num_clients, -1, np.int64)
        self._is_prompt = np.zeros(self._num_clients, np.int8)
        script = fleet.workload.script
        self._from_engine = script is not None and script.from_engine
        if fleet.recorder.wants_tokens:
            fleet.recorder.send_tokens_through(partial(LateTokens, forwarding, fleet.workload.demands["deadline_ns"]))

    def __dealloc__(self):
        free(self._gateways)

    def attach(self, Source source):
        """Notify a source of an end when the client knows of it."""
        self._source = source

    cdef int handle(self, const Event* event) except -1 nogil:
        cdef int32_t row = <int32_t>event.payload
        if event.kind == ARRIVAL and self._states[row] == WILL_SEND:
            self._states[row] = SENDS_AGAIN         # as soon as the region has ended the old attempt
            return 0
        if event.kind != TIME_OUT:
            return self._clients.handle(event)
        if event.payload & HEARD:
            return self._hear(row, event.time_ns)
        if event.payload & CANCELLED:
            return self._cancel(row, event.time_ns)
        return self._time_out(row, event.time_ns)

    # ---- the end of a request

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        cdef Request* request = &self._fleet.requests[row]
        cdef void* stage = self._stage_of(row)
        cdef int64_t heard_ns = now_ns, back_ns
        self._is_prompt[row] = request.replica < 0
        if self._states[row] >= GAVE_UP:
            self._void(row)
            self._fleet.recorder.finished -= 1      # it has counted when the client gave up
            if self._states[row] >= WILL_SEND:
                self._renew(row)
            if self._states[row] == SENDS_AGAIN:
                self._fleet.events.push(now_ns, ARRIVAL, ARRIVAL, 0, row)
            self._states[row] = NOTHING_ON_WAY
            return 0
        if stage == NULL or not (<RegionStage>stage).is_away(row):
            self._tell_clients(row, how, now_ns)
            return 0
        back_ns = (<RegionStage>stage).back_ns(row)
        if request.status == COMPLETED:             # a scheduler may report tokens at the begin of their iteration
            heard_ns = max(now_ns, self._fleet.gate.last_token_ns[row] if self._from_engine else request.completed_ns)
            request.completed_ns += back_ns
        heard_ns += back_ns
        if request.status == TIMED_OUT:             # a replica knew that it would come too late
            heard_ns = max(heard_ns, self._fleet.demands[row].deadline_ns)
        self._states[row], self._next_ns[row] = END_ON_WAY, heard_ns
        self._fleet.recorder.finished -= 1
        return self._fleet.events.push(heard_ns, BEFORE_TIME_OUT, TIME_OUT, 0, row | HEARD)

    cdef int _hear(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Let a client know of the end of its request."""
        if self._states[row] != END_ON_WAY or self._next_ns[row] != now_ns:
            return 0                                # it has given up before
        self._states[row] = NOTHING_ON_WAY
        self._tell(row, now_ns)
        return 0

    cdef bint _tell(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Note the end of a forwarded request at its client; return whether the client sends it again."""
        self._fleet.recorder.finished += 1
        if self._tell_clients(row, LEG_ENDED, now_ns):
            return True
        if not self._source.is_fixed:
            self._source.ended(row, LEG_ENDED, now_ns)
        return False

    cdef bint _tell_clients(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        """Let a client send a request again that failed; return whether it does."""
        cdef int64_t num_finished = self._fleet.recorder.finished
        if self._clients is None:
            return False
        self._clients.ended(row, how, now_ns)
        if self._fleet.recorder.finished == num_finished:
            return False
        if self._states[row] == NOTHING_ON_WAY:
            self._renew(row)
        return True

    cdef int _renew(self, int32_t row) except -1 nogil:
        """Let a request be sent again, to its home, once tokens of this attempt have been passed on."""
        if self._fleet.recorder.num_tokens > 0:
            with gil:
                self._fleet.recorder.pass_tokens_on()
        (<RegionStage>self._stage_of(row)).renew(row)
        return 0

    # ---- giving up

    cdef int _time_out(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef void* stage = self._stage_of(row)
        if self._states[row] >= GAVE_UP or self._fleet.demands[row].deadline_ns < 0:
            return 0
        if self._fleet.requests[row].status >= COMPLETED and self._states[row] == NOTHING_ON_WAY:
            return 0
        if not (<RegionStage>stage).is_away(row):
            return self._end(row, now_ns) if now_ns >= self._due_ns(row) else 0
        if now_ns < self._fleet.demands[row].deadline_ns:
            return self._fleet.events.push(self._fleet.demands[row].deadline_ns, TIME_OUT, TIME_OUT, 0, row)
        return self._give_up(row, now_ns)

    cdef int _give_up(self, int32_t row, int64_t now_ns) except -1 nogil:
        """Let the client of a forwarded request give up."""
        cdef void* stage = self._stage_of(row)
        cdef Request* request = &self._fleet.requests[row]
        cdef int8_t status
        if self._states[row] == END_ON_WAY:
            self._void(row)
            self._states[row] = NOTHING_ON_WAY
            self._tell(row, now_ns)
            return 0
        if (<RegionStage>stage).back_ns(row) == 0 and request.replica >= 0:        # it may be complete at this instant
            self._fleet.advance_some(request.replica, request.replica + 1, now_ns + 1)
            if request.status >= COMPLETED:
                return 0
        status, request.status = request.status, TIMED_OUT
        self._states[row], self._next_ns[row] = GAVE_UP, now_ns + (<RegionStage>stage).there_ns(row)
        if self._tell(row, now_ns):
            self._states[row] = WILL_SEND
        request.status = status
        return self._fleet.events.push(self._next_ns[row], TIME_OUT, TIME_OUT, 0, row | CANCELLED)

    cdef int _cancel(self, int32_t row, int64_t now_ns) except -1 nogil:
        """End a request in its region after its client has given up."""
        if self._states[row] < GAVE_UP or self._next_ns[row] != now_ns or self._fleet.requests[row].status >= COMPLETED:
            return 0
        return self._end(row, now_ns)

    cdef int _end(self, int32_t row, int64_t now_ns) except -1 nogil:
        """End a request that is at a replica or at a gateway."""
        if self._fleet.requests[row].replica >= 0:
            return self._fleet.withdraw(row, TIMED_OUT, now_ns)
        return (<Gateway>self._gateways[self._index_of(row)]).give_up(row, now_ns)

    cdef void _void(self, int32_t row) noexcept nogil:
        """Make of a request that ended after its client gave up one that timed out."""
        cdef Request* request = &self._fleet.requests[row]
        cdef ReplicaRow* counts
        if request.status == COMPLETED and not self._is_prompt[row]:
            counts = &(<Replica>self._fleet.entries[request.replica].replica).rank.row
            counts.completed -= 1
        request.status, request.completed_ns = TIMED_OUT, -1
        self._fleet.journeys[row].cause = NO_CAUSE

    cdef int64_t _due_ns(self, int32_t row) noexcept nogil:
        """Return when a request at home must have left, in engine time, as Cluster has it."""
        if self._fleet.requests[row].replica >= 0:
            return self._fleet.due_ns(row, self._fleet.requests[row].replica)
        return self._fleet.demands[row].deadline_ns - (<Gateway>self._gateways[self._index_of(row)]).shift_ns

    cdef inline int32_t _index_of(self, int32_t row) noexcept nogil:
        """Return the index of the gateway of a request, which a fallback may change."""
        return self._gateway_of[self._fleet.demands[row].model + 1]

    cdef void* _stage_of(self, int32_t row) noexcept nogil:
        """Return the RegionStage of the gateway of a request; NULL: no pool serves its model."""
        cdef int32_t index = self._index_of(row)
        return NULL if index < 0 else self._forwarding._stages[index]

    # ---- results

    def report(self, run):
        """See Operation; an end that its client does not know of is none."""
        if self._clients is not None:
            self._clients.report(run)
        requests, states = run.workload.requests, np.asarray(self._states)
        requests["status"][states >= GAVE_UP] = records.TIMED_OUT
        unknown = np.flatnonzero((states == END_ON_WAY) & (requests["status"] == records.COMPLETED))
        requests["status"][unknown], requests["completed_ns"][unknown] = records.RUNNING, records.NEVER_NS
        unknown = unknown[np.asarray(self._is_prompt)[unknown] == 0]
        np.subtract.at(run.replicas["completed"], requests["replica"][unknown], 1)
