"""Plans for moves of requests between replicas; mover.pxd carries them out."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.gateway.gateway cimport Gateway
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.mover cimport Mover
from simulator.engine.operations.base cimport Operation
from simulator.routing.rescheduling.base cimport Move, Rescheduler


@cython.final
cdef class Migration(Operation):
    cdef readonly Mover mover
    cdef Fleet _fleet
    cdef list _replicas         # Replica
    cdef list _gateways        # Gateway
    cdef list _reschedulers     # [gateway]; None: requests move only off replicas that are emptied
    cdef object _plan           # MovePlan
    cdef set _emptied           # replicas to be emptied
    cdef int32_t _num_emptied
    cdef list _orders           # actions given to `at`

    cdef int _handle(self, int kind, int64_t payload, int64_t now_ns) except -1
    cdef int _reschedule(self, int32_t index, int64_t now_ns) except -1
    cdef int _carry_out(self, Gateway gateway, Rescheduler rescheduler, const Move* move, int64_t now_ns) except -1
    cdef int _drop_arrived(self, int32_t row, int32_t index, int64_t now_ns) except -1
