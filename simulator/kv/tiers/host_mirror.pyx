"""A copy in host memory of the blocks that a replica fills, as BLIS models it.

After every iteration all full blocks of running sequences are there, as the last to be evicted; the block evicted is
the one that a running sequence held longest ago. An allocation first brings back the blocks that the host has of a
prompt, into free blocks, at no cost but time: the next iteration takes longer by that, and computes the tokens all the
same. Source: inference-sim (BLIS) at f90a1e3a, sim/kv/tiered.go.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.kv.mirror cimport ABSENT, HELD, Mirror, Place
from simulator.kv.tiers.chunk_table cimport ChunkTable

from simulator.kv.holdings import Holdings


@cython.final
cdef class HostMirror(Mirror):
    """Host memory of one replica.

    blocks : blocks that fit.
    reload_ns : of a block.
    when_full : it is asked only when the KV cache has no room, as BLIS did up to 0.7.10.
    block_bytes : of a block on all accelerators, for the counters.
    """

    cdef ChunkTable _table
    cdef int64_t _reload_ns             # of a block
    cdef int64_t _waiting_ns            # reloads that no iteration has waited for yet
    cdef double _block_bytes
    cdef readonly int64_t mirrored      # blocks, so far
    cdef readonly int64_t evicted
    cdef readonly int64_t reloaded

    def __init__(self, int64_t blocks, int64_t reload_ns, bint when_full=False, double block_bytes=0.0):
        self._table = ChunkTable(blocks)
        self._reload_ns, self.when_full, self._block_bytes = reload_ns, when_full, block_bytes

    cdef Place place_of(self, uint64_t hash) noexcept nogil:
        return HELD if self._table.find(hash) != 0 else ABSENT

    cdef void reload(self, uint64_t hash) noexcept nogil:
        self._table.move_back(self._table.find(hash), 0)
        self._waiting_ns += self._reload_ns
        self.reloaded += 1

    cdef int keep(self, uint64_t hash) except -1 nogil:
        cdef int32_t element = self._table.find(hash)
        if element != 0:
            self._table.move_back(element, 0)
            return 0
        if self._table.size() == self._table.capacity:
            self._table.drop(self._table.chunks[0].next, 1)
            self.evicted += 1
        self._table.prepare(1)
        self._table.written(self._table.add(hash, 0, 0))
        self.mirrored += 1
        return 0

    cdef int64_t take_waiting_ns(self) noexcept nogil:
        cdef int64_t waiting_ns = self._waiting_ns
        self._waiting_ns = 0
        return waiting_ns

    cdef int fail(self) except -1 nogil:
        self._waiting_ns = 0
        with gil:
            self._table.clear()
        return 0

    def holdings(self):
        """See KVTier."""
        return Holdings(self.block_size, self.block_size, (self._table,))

    def rows(self):
        """See KVTier."""
        return [{"capacity_chunks": self._table.capacity, "used_chunks": self._table.size(), "stores": self.mirrored,
                 "stored_chunks": self.mirrored, "stored_bytes": self.mirrored * self._block_bytes,
                 "loads": self.reloaded, "loaded_chunks": self.reloaded,
                 "loaded_bytes": self.reloaded * self._block_bytes, "evicted_chunks": self.evicted,
                 "waited_ns": self.reloaded * self._reload_ns}]

    def check(self):
        """Raise RuntimeError unless the table agrees with itself."""
        self._table.check()
