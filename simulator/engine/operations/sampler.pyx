"""Periodic samples of the state of replicas."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport Event
from simulator.domain.replica_state cimport ReplicaState
from simulator.domain.trace_rows cimport SampleRow
from simulator.engine.fleet.events cimport SAMPLE
from simulator.engine.fleet.fleet cimport Fleet, ReplicaEntry
from simulator.engine.fleet.live_view cimport LiveView
from simulator.engine.replica.observation cimport observe
from simulator.engine.operations.base cimport Operation
from simulator.engine.replica.replica cimport Replica
from simulator.engine.output.row_stream cimport RowStream


@cython.final
cdef class Sampler(Operation):
    """Sample all replicas at 0, period_ns, 2 x period_ns, ... while there is work.

    fleet : the replicas.
    period_ns : time between two samples.
    rows : RowStream of `records.SAMPLE`, a row for each replica and sample.
    """

    cdef Fleet _fleet
    cdef int64_t _period_ns
    cdef RowStream _rows

    def __init__(self, Fleet fleet, int64_t period_ns, RowStream rows):
        self.kinds = (SAMPLE,)
        self._fleet, self._period_ns, self._rows = fleet, period_ns, rows

    cdef int start(self) except -1 nogil:
        return self._fleet.push_tick(0, SAMPLE, 0)

    cdef int handle(self, const Event* event) except -1 nogil:
        cdef ReplicaState state
        cdef SampleRow* row
        cdef const ReplicaEntry* entry
        cdef int32_t index
        for index in range(self._fleet.num_replicas):
            entry = &self._fleet.entries[index]
            observe(<Replica>entry.replica, event.time_ns, &state)
            row = <SampleRow*>self._rows.add()
            row.time_ns, row.replica = event.time_ns, index
            row.waiting, row.running, row.used_blocks = state.waiting, state.running, state.used_blocks
            row.in_flight = (<LiveView>entry.view).accounts[entry.index].in_flight
        return self._fleet.push_tick(event.time_ns + self._period_ns, SAMPLE, 0)
