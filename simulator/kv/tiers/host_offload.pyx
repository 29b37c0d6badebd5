"""Host memory of one replica to which blocks are moved, as BLIS had it up to v0.6.9.

When a request gives up its blocks while more than a share of all is in use, free blocks that a lookup can find are
moved to host memory, one by one, the first to be reused first: in the KV cache they then hold nothing, and are reused
last. When an allocation fails, all blocks in host memory return, in order of index, into free blocks, whether the
request needs them or not; without enough free blocks later ones overwrite earlier ones. The next iteration takes longer
by their copies, and computes its tokens all the same. Source: inference-sim (BLIS), sim/kv/tiered.go before v0.7.0.

A block in host memory has the index that it had in the KV cache, and replaces an earlier one with that index. Room is
counted by blocks moved in and given back: a replaced block still counts, so host memory is full too early. That is a
fault of BLIS's, and its recorded runs have it.
"""
from libc.stdlib cimport free
from libc.string cimport memset
cimport cython

from simulator.core.memory cimport resize

cdef enum:
    THRASH_NS = 1_000_000       # 1000 of BLIS's ticks
    FIRST_ROOM = 64


@cython.final
cdef class HostOffload(Mirror):
    """Host memory of one replica.

    blocks : blocks that fit.
    threshold : blocks move while a larger share of the KV cache is in use.
    reload_ns : of a block.
    block_bytes : of a block on all accelerators, for the counters.
    """

    def __init__(self, int64_t blocks, double threshold, int64_t reload_ns, double block_bytes=0.0):
        self.moves = True
        self._capacity, self._threshold, self._reload_ns = blocks, threshold, reload_ns
        self._block_bytes = block_bytes

    def __dealloc__(self):
        free(self._moved)

    cdef int begins(self, int64_t now_ns) except -1 nogil:
        self._now_ns = now_ns
        return 0

    cdef bint takes(self, int32_t held, int32_t num_blocks) noexcept nogil:
        return <double>held / num_blocks > self._threshold and self._charged < self._capacity

    cdef int take(self, int32_t block, uint64_t hash) except -1 nogil:
        cdef int32_t room = max(max(2 * self._room, block + 1), FIRST_ROOM)
        if block >= self._room:
            resize(&self._moved, room * sizeof(Moved))
            memset(self._moved + self._room, 0, (room - self._room) * sizeof(Moved))
            self._room = room
        if self._moved[block].hash != 0:
            self.replaced += 1
        else:
            self._num_moved += 1
        self._moved[block].hash, self._moved[block].since_ns = hash, self._now_ns
        self._charged += 1
        self.moved += 1
        return 0

    cdef int32_t next_taken(self, int32_t block) noexcept nogil:
        block += 1
        while self._num_moved > 0 and block < self._room:
            if self._moved[block].hash != 0:
                return block
            block += 1
        return 0

    cdef uint64_t hash_of(self, int32_t block) noexcept nogil:
        return self._moved[block].hash

    cdef void give_back(self, int32_t block) noexcept nogil:
        self._moved[block].hash = 0
        self._num_moved -= 1
        self._charged -= 1
        self._waiting_ns += self._reload_ns
        self.reloaded += 1
        self.thrashed += self._now_ns > 0 and self._now_ns - self._moved[block].since_ns < THRASH_NS

    cdef int64_t take_waiting_ns(self) noexcept nogil:
        cdef int64_t waiting_ns = self._waiting_ns
        self._waiting_ns = 0
        return waiting_ns

    cdef int fail(self) except -1 nogil:
        if self._room > 0:
            memset(self._moved, 0, self._room * sizeof(Moved))
        self._waiting_ns = self._charged = self._num_moved = 0
        return 0

    def rows(self):
        """See KVTier."""
        return [{"capacity_chunks": self._capacity, "used_chunks": self._num_moved, "stores": self.moved,
                 "stored_chunks": self.moved, "stored_bytes": self.moved * self._block_bytes,
                 "loads": self.reloaded, "loaded_chunks": self.reloaded,
                 "loaded_bytes": self.reloaded * self._block_bytes, "evicted_chunks": self.replaced,
                 "thrashed_chunks": self.thrashed, "waited_ns": self.reloaded * self._reload_ns}]

    # ---- the debug face

    def hashes(self):
        """Return the blocks in host memory, {index: hash}."""
        return {block: self._moved[block].hash for block in range(self._room) if self._moved[block].hash != 0}

    def check(self):
        """Raise RuntimeError unless the counts agree with the blocks in host memory."""
        found = len(self.hashes())
        if not found == self._num_moved <= self._charged <= self._capacity:
            raise RuntimeError(
                f"{found} blocks, {self._num_moved} counted, {self._charged} of {self._capacity} charged")
