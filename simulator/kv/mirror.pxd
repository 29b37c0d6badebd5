"""A copy in host memory of the blocks that a replica fills: what a KV cache of BLIS's asks of it."""
from libc.stdint cimport int64_t, uint64_t

from simulator.kv.tier cimport KVTier


cdef class Mirror(KVTier):
    cdef readonly bint when_full        # it is asked only where the KV cache has no room

    # Is a block with this hash there? It is taken back to the KV cache: it stays there, as the last to go.
    cdef bint holds(self, uint64_t hash) noexcept nogil
    cdef void reload(self, uint64_t hash) noexcept nogil

    # A block with this hash is held by somebody who runs: it is there from now on, the last to go.
    cdef int keep(self, uint64_t hash) except -1 nogil

    # How long the iteration that begins waits for what was reloaded.
    cdef int64_t take_waiting_ns(self) noexcept nogil
