"""`never`: replicas are never saturated."""
cimport cython

from simulator.admission.saturation.base cimport SaturationDetector

import msgspec


class NeverParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Saturation is 0. Source: the definition."""


@cython.final
cdef class Never(SaturationDetector):
    """Replicas are never saturated; only its ticks slow a gateway queue down."""

    Parameters = NeverParameters
