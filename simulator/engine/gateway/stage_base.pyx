"""What a request waits for between admission and router: what the gateway knows of it."""
from libc.stdint cimport int32_t, int64_t


cdef class Stage:
    """Base of `encoders.stage.EncodeStage`, which knows the gateways that know it."""

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        return False
