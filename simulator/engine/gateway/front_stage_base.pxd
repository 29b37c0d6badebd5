"""Base of a stage that requests go through before the gateway queue, not behind it."""
from simulator.engine.gateway.stage_base cimport Stage


cdef extern from "Python.h":
    bint PyObject_TypeCheck(void* stage, void* kind) noexcept nogil


cdef class FrontStage(Stage):
    pass


# Return whether a stage, which may be None, comes before the gateway queue.
cdef inline bint goes_first(Stage stage) noexcept nogil:
    return stage is not None and PyObject_TypeCheck(<void*>stage, <void*>FrontStage)
