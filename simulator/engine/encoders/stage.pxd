"""Gateway stage that holds requests back until their items are encoded."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.engine.encoders.group cimport Group
from simulator.engine.encoders.operation cimport Encoders
from simulator.engine.gateway.stage_base cimport Stage


@cython.final
cdef class EncodeStage(Stage):
    cdef void* _encoders                # Encoders, borrowed: it refers to the gateway that refers to this stage
    cdef void* _group                   # Group, borrowed
