"""Policies that answer what their bases do not allow."""
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t

from simulator.admission.base cimport Admission
from simulator.admission.saturation.base cimport SaturationDetector
from simulator.routing.base cimport Router
from simulator.routing.filters.base cimport Filter
from simulator.routing.rescheduling.base cimport Rescheduler, Selection

import msgspec


class Answers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number that is answered."""

    answer: int = 0


cdef class Routes(Router):
    Parameters = Answers
    cdef int32_t _answer

    def __init__(self, parameters, context):
        self._answer = parameters.answer

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        return self._answer


cdef class Keeps(Filter):
    Parameters = Answers
    cdef int32_t _answer

    def __init__(self, parameters, context):
        self._answer = parameters.answer

    cdef int32_t keep(self, int32_t row, int32_t* candidates, int32_t count, int64_t now_ns) except -1 nogil:
        return self._answer


cdef class Admits(Admission):
    Parameters = Answers
    cdef int32_t _answer

    def __init__(self, parameters, context):
        self._answer = parameters.answer

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        return self._answer


cdef class Detects(SaturationDetector):
    Parameters = Answers

    cdef double saturation(self, int64_t now_ns) except -1.0 nogil:
        return NAN


cdef class Moves(Rescheduler):
    Parameters = Answers
    cdef int32_t _answer

    def __init__(self, parameters, context):
        self._answer = parameters.answer
        self.interval_ns = 1_000_000

    cdef int plan(self, int64_t now_ns) except -1 nogil:
        cdef Selection selection
        selection.rule = selection.order = 0
        selection.value = 1
        self.num_moves = 0
        return self.add_move(0, self._answer, 0, &selection)
