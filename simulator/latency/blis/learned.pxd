"""Base of the backends whose prices were learned: where the coefficients come from, and how far to trust them."""
from simulator.latency.base cimport LatencyModel


cdef class LearnedModel(LatencyModel):
    cdef readonly object choice     # coefficients.Choice
    cdef object _deployment         # what runs; None where it is not known
