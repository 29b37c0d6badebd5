"""Host memory of one replica as BLIS models it."""
from libc.stdint cimport int64_t
cimport cython

from simulator.kv.mirror cimport Mirror
from simulator.kv.tiers.chunk_table cimport ChunkTable


@cython.final
cdef class HostMirror(Mirror):
    cdef ChunkTable _table
    cdef int64_t _reload_ns             # of a block
    cdef int64_t _waiting_ns            # reloads that no iteration has waited for yet
    cdef double _block_bytes
    cdef readonly int64_t mirrored      # blocks, so far
    cdef readonly int64_t evicted
    cdef readonly int64_t reloaded
