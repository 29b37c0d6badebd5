"""`always`: every request is let in."""
cimport cython

from simulator.admission.base cimport Admission

import msgspec


class AlwaysParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every request is let in. Source: the definition."""


@cython.final
cdef class Always(Admission):
    """Every request is let in."""

    Parameters = AlwaysParameters
