"""Collective models that remember what they have computed: batches repeat their sizes."""
from libc.stdint cimport int32_t

from simulator.collective.base cimport CollectiveGroup, CollectiveKind, CollectiveModel


cdef enum Origin:               # of a predicted time, from best to worst
    EXACT                       # a measured point, or a formula that is the model itself
    INTERPOLATED                # between measured points
    EXTRAPOLATED                # outside of what was measured


cdef enum:
    MEMO_SLOTS = 1024           # power of two; 32 KB, of which a batch touches a few lines


cdef struct Remembered:         # 24 bytes
    double num_bytes
    double ns
    int32_t key                 # group and kind; -1: the slot is free
    int32_t origin


cdef class RememberingCollective(CollectiveModel):
    cdef Remembered _memo[MEMO_SLOTS]

    cdef double time_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes) noexcept nogil

    # What subclasses override: nanoseconds of more than 0 bytes, and where they come from. A pure function.
    cdef double compute_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes,
                           Origin* origin) noexcept nogil

    cdef void _forget(self) noexcept nogil
