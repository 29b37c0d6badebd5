"""Two tiers of one replica, in an order."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.tier cimport External, KVTier, LoadEnd


@cython.final
cdef class MultiTier(KVTier):
    cdef readonly KVTier first, second
    cdef bint _asks_both
    cdef bint _first_has_it         # the first tier has tokens for the request that asked last

    # Did the first tier do the last load of a request?
    cdef inline bint _is_of_first(self, int32_t row) noexcept nogil:
        return self.first.loaded_tokens(row) > 0
