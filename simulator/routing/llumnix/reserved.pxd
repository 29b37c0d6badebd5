"""Adaptive P/D keeps one candidate for prefills and one for decodes, whatever they are called."""
from simulator.routing.llumnix.candidates cimport Candidates


# Reserve one for each where none is. A reservation lasts as long as its candidate takes requests.
cdef void reserve(Candidates candidates) noexcept nogil
