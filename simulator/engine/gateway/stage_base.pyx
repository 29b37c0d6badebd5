"""Base of a stage that holds requests back between admission and router: the part that the gateway uses."""


cdef class Stage:
    """Base of `encoders.stage.EncodeStage`; gateways and stages refer to each other."""

    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil:
        return False
