"""Gateway stage that holds requests back until their items are encoded."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.engine.encoders.group cimport Group
from simulator.engine.encoders.operation cimport Encoders
from simulator.engine.gateway.stage_base cimport Stage
from simulator.routing.instances.base cimport Assignment


@cython.final
cdef class EncodeStage(Stage):
    """The stage of one gateway.

    encoders : Encoders. groups : {region: Group} of that gateway.
    assignment : of requests to regions; None: there are none, and the only group has number 0.
    """

    cdef void* _encoders                # Encoders, borrowed: it refers to the gateway that refers to this stage
    cdef void** _groups                 # [region] Group, borrowed; NULL: it has no encoders
    cdef int32_t _num_groups
    cdef Assignment _assignment

    def __init__(self, Encoders encoders, groups, Assignment assignment):
        cdef Group group
        self._encoders, self._num_groups, self._assignment = <void*>encoders, max(groups) + 1, assignment
        self._groups = <void**>calloc(self._num_groups, sizeof(void*))
        if self._groups == NULL:
            raise MemoryError()
        for group in groups.values():
            self._groups[group.region] = <void*>group

    def __dealloc__(self):
        free(self._groups)

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t region = 0 if self._assignment is None else self._assignment.group_of(row)
        if region >= self._num_groups or self._groups[region] == NULL:
            return False
        return (<Encoders>self._encoders).begin(row, <Group>self._groups[region], now_ns)
