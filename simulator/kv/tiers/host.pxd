"""Host memory of a replica: base of the tiers that keep chunks of KV there."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.tables cimport TierUse
from simulator.kv.base cimport KVCache
from simulator.kv.content cimport Content
from simulator.kv.tier cimport KVTier
from simulator.kv.tiers.chunk_table cimport ChunkTable
from simulator.kv.tiers.copies cimport Copies
from simulator.kv.tiers.eviction cimport EvictionPolicy


cdef class HostTier(KVTier):
    cdef readonly KVCache kv
    cdef readonly ChunkTable table
    cdef readonly EvictionPolicy policy
    cdef readonly Copies copying
    cdef readonly int64_t refusals      # offers for which there was no room
    cdef readonly int64_t evictions     # chunks evicted for others
    cdef object _settings               # Offloading
    cdef Content _content
    cdef bint _prompt_only              # outputs are not stored
    cdef int32_t _threshold             # how often a chunk must be offered before it is written, if counted
    cdef int64_t _guard                 # guard of the offer in progress
    cdef int64_t _num_guarded           # idle chunks under it
    cdef int64_t _hit_chunks
    cdef object _log                    # of the debug face, see take_log; None: not kept
    cdef TierUse* _use                  # [row]; borrowed from _use_owner; NULL: not requested
    cdef object _use_owner
    cdef int64_t _stores, _stored_chunks, _stored_blocks        # copies that were done
    cdef int64_t _loads, _loaded_chunks, _loaded_blocks

    # Make room for `count` new chunks by evicting idle chunks without guard; False: too few, none was evicted.
    @cython.final
    cdef bint _make_room(self, int64_t count) except -1 nogil

    # A copy of a request is done; it held `tokens` tokens of its text.
    @cython.final
    cdef void _count(self, int32_t copy, int32_t row, int64_t tokens) noexcept nogil

    cdef int _note_refusal(self) except -1 nogil
