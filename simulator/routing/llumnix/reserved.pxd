"""Adaptive P/D reserves one candidate for prefills and one for decodes, of any infer type."""
from simulator.routing.llumnix.candidates cimport Candidates


# Reserve one for each where none is. A reservation lasts as long as its candidate takes requests.
cdef void reserve(Candidates candidates) noexcept nogil
