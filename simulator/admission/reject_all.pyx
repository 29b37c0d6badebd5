"""`reject_all`: no request is let in."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.admission.base cimport Admission

import msgspec


class RejectAllParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No request is let in. Source: the definition."""


@cython.final
cdef class RejectAll(Admission):
    """No request is let in, as in an outage of the gateway."""

    Parameters = RejectAllParameters

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        return 0
