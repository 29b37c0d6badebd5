"""Gateway stage that holds requests back until their items are encoded."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.encoders.group cimport Group
from simulator.engine.encoders.operation cimport Encoders
from simulator.engine.gateway.stage_base cimport Stage


@cython.final
cdef class EncodeStage(Stage):
    """The stage of one gateway. encoders : Encoders. group : Group of that gateway."""

    cdef void* _encoders                # Encoders, borrowed: it refers to the gateway that refers to this stage
    cdef void* _group                   # Group, borrowed

    def __init__(self, Encoders encoders, Group group):
        self._encoders, self._group = <void*>encoders, <void*>group

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        return (<Encoders>self._encoders).begin(row, <Group>self._group, now_ns)
