"""The operations of a cluster that are written in Python, as one operation of the engine."""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport Event
from simulator.engine.fleet.events cimport CALL
from simulator.engine.fleet.fleet cimport Fleet
from simulator.engine.operations.agenda cimport Agenda
from simulator.engine.operations.base cimport Operation

from simulator.engine.operations.python_operation import PythonOperation


@cython.final
cdef class PythonCalls(Operation):
    """Calls of all PythonOperation of a cluster, in order."""

    cdef Agenda _agenda
    cdef list _called, _hearing         # all operations; those that override `ended`

    def __init__(self, Fleet fleet, called):
        self.kinds = (CALL,)
        self._agenda, self._called = Agenda(fleet), list(called)
        self._hearing = [each for each in self._called if type(each).ended is not PythonOperation.ended]

    cdef int start(self) except -1 nogil:
        with gil:
            for operation in self._called:
                operation.begin(lambda time_ns, action: self._agenda.tick(time_ns, CALL, action))
        return 0

    cdef int handle(self, const Event* event) except -1 nogil:
        return self._agenda.act(event)

    cdef int ended(self, int32_t row, int8_t how, int64_t now_ns) except -1 nogil:
        with gil:
            for operation in self._hearing:
                operation.ended(row, now_ns)
        return 0

    def report(self, run):
        """See Operation."""
        for operation in self._called:
            operation.report(run)
