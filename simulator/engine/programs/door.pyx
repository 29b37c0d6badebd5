"""Gateway stage that holds turns of programs back, and sends them to the replica of their program."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.journey cimport ROLE_WHOLE
from simulator.domain.replica_state cimport ReplicaState
from simulator.domain.request cimport COMPLETED
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.gateway.stage_base cimport Stage
from simulator.engine.operations.movables cimport list_movables
from simulator.engine.replica.observation cimport observe
from simulator.engine.replica.replica cimport Replica


@cython.final
cdef class ProgramDoor(Stage):
    """The stage of one gateway.

    gate : gate.ProgramGate, set before the run; it is asked about each request.
    """

    cdef public object gate
    cdef Gateway _gateway
    cdef Fleet _fleet

    def __init__(self, Gateway gateway, Fleet fleet):
        self._gateway, self._fleet = gateway, fleet
        gateway.hold_back(self)

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        with gil:
            return self.gate.holds(row, now_ns)

    def send(self, int32_t row, int32_t replica, int64_t now_ns):
        """Send a turn to a replica, as numbered in the view; -1: the router chooses one."""
        if self._fleet.requests[row].status >= COMPLETED:
            return
        if replica >= 0 and self._gateway.view.accounts[replica].is_routable:
            self._gateway.dispatch(row, replica, ROLE_WHOLE, now_ns)
        else:
            self._gateway.go_on(row, now_ns)

    def routable(self):
        """Return which replicas of the view may be routed to, as bytes."""
        return self._gateway.view.account_array["is_routable"].tobytes()

    def pools(self):
        """Return the pool of each replica of the view."""
        return self._gateway.view.account_array["pool"].tolist()

    def capacity_tokens(self, int32_t replica, int64_t now_ns):
        """Return the tokens that the KV blocks of a replica hold."""
        cdef ReplicaState state
        observe(<Replica>self._fleet.replicas[self._gateway.view.accounts[replica].replica], now_ns, &state)
        return <int64_t>state.num_blocks * state.block_size

    def running(self, int64_t now_ns):
        """Return (row, tokens of prompt and outputs) of each request that waits or runs at a replica."""
        cdef Replica replica
        cdef int32_t i, index
        found = []
        for i in range(self._gateway.view.num_replicas):
            index = self._gateway.view.accounts[i].replica
            if self._gateway.view.accounts[i].in_flight == 0:
                continue
            replica = self._fleet.replicas[index]
            replica.settle_run(now_ns)
            self._fleet.touched(index)
            movables, _ = list_movables(replica, {})
            found += zip(movables["row"].tolist(), movables["tokens"].tolist())
        return found
