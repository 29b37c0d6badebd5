"""KV blocks as BLIS keeps them.

Unlike vLLM's (see paged.pyx): all freed blocks go to the back of the free list, hashed or not. Of two blocks with the
same text the one cached last is found, and once a block is reused nothing is found under its hash, whoever else holds
that text. A lookup may find a prompt whole. Source: inference-sim (BLIS) at f90a1e3a, sim/kv/cache.go.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.core.memory cimport resize
from simulator.kv.base cimport blocks_for
from simulator.kv.block_pool cimport BlockPool, Table
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.content cimport Content, Cursor


@cython.final
cdef class BlisKV(BlockPool):
    """Blocks of one replica, each with its content.

    num_blocks, block_size : as for KVCache.
    content : the texts of the requests.
    enable_prefix_caching : full blocks are cached.
    """

    def __cinit__(self, int32_t num_blocks, int32_t block_size, Content content, bint enable_prefix_caching=True):
        self._cached = HashMap()

    def __dealloc__(self):
        free(self._skipped)

    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil:
        cdef int32_t before = self.num_slots
        if num_slots <= before:
            return 0
        resize(&self._skipped, num_slots * sizeof(int64_t))
        memset(self._skipped + before, 0, (num_slots - before) * sizeof(int64_t))
        return BlockPool.reserve_slots(self, num_slots)

    cdef int _relocate(self, int32_t num_records) except -1 nogil:
        return self._cached.reserve(num_records)

    # ---- prefix cache

    cdef int32_t lookup(self, int32_t row, int32_t num_tokens) except -1 nogil:
        cdef int32_t most = self.most_hits(row, num_tokens), found = 0, block
        cdef Cursor cursor
        self._free_hits = 0
        memset(&self._hits_cursor, 0, sizeof(Cursor))
        if most > self._room_hits:
            self._grow_hits(most)
        cursor = self._hits_cursor
        while found < most:
            block = self._cached.get(self._content.advance(row, self.block_size, &cursor))
            if block < 0:
                break
            self._hits[found] = block
            self._free_hits += self._blocks[block].references == 0
            self._hits_cursor = cursor
            found += 1
        return found

    cdef int32_t most_hits(self, int32_t row, int32_t num_tokens) noexcept nogil:
        return (num_tokens - 1) // self.block_size if self._caching and num_tokens > 0 else 0

    cdef int cache(self, int32_t slot, int64_t known_tokens) except -1 nogil:
        cdef Table* table = &self._tables[slot]
        cdef int32_t full = <int32_t>(known_tokens // self.block_size), i
        cdef uint64_t hash
        if self.block_size == 1:
            full = min(full, self._content.prompt_tokens(table.row))        # forgotten: what one output fills
        if not self._caching or self._skipped[slot] > 0:          # the text of its blocks is no prefix of anything
            return 0
        for i in range(table.num_hashed, full):
            hash = self._content.advance(table.row, self.block_size, &table.cursor)
            if self._log is not None and self._cached.get(hash) < 0:
                self._log.note(hash, True)
            self._cached.put(hash, table.blocks[i])
            self._blocks[table.blocks[i]].hash = hash
            table.num_hashed = i + 1
        return 0

    # ---- allocation

    cdef void skip(self, int32_t slot, int32_t row, int64_t num_tokens) noexcept nogil:
        self._tables[slot].row = row
        self._skipped[slot] = num_tokens

    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil:
        cdef Table* table = &self._tables[slot]
        cdef int32_t have = self._owned[slot] + hits
        cdef int32_t revived = self._free_hits if hits > 0 else 0
        cdef int32_t need = max(blocks_for(slots - self._skipped[slot], self.block_size) - have, 0)
        cdef int32_t whole = max(blocks_for(full_tokens, self.block_size) - have, need)
        cdef int32_t i
        if whole + revived + watermark > self.free_blocks:
            return 0
        self._prepare(table, have + need, need)
        if self._owned[slot] == 0:
            table.row = row
            table.num_hashed = hits
            memset(&table.cursor, 0, sizeof(Cursor))
        if hits > 0:
            table.cursor = self._hits_cursor
            memcpy(table.blocks, self._hits, hits * sizeof(int32_t))
        for i in range(hits):
            if self._blocks[self._hits[i]].references == 0:
                self._unlink(self._hits[i])
            self._blocks[self._hits[i]].references += 1
        self.free_blocks -= revived
        self._take(table, have, need)
        self._owned[slot] = have + need
        return 1 if self.cache(slot, known_tokens) == 0 else -1

    cdef int _take(self, Table* table, int32_t owned, int32_t count) except -1 nogil:
        cdef int32_t block = self._blocks[0].next, i
        for i in range(owned, owned + count):
            if self._blocks[block].hash != 0:
                if self._evicted is not None:
                    self._note_eviction(block)
                self._drop(self._blocks[block].hash)        # though another block may be cached under it
                self._blocks[block].hash = 0
            self._blocks[block].references = 1
            table.blocks[i] = block
            block = self._blocks[block].next
        self._set_front(block)
        self.free_blocks -= count
        return 0

    cdef void _drop(self, uint64_t hash) noexcept nogil:
        if self._cached.remove(hash) >= 0 and self._log is not None:
            self._log.note(hash, False)

    cdef int release(self, int32_t slot, bint returns) except -1 nogil:
        cdef Table* table = &self._tables[slot]
        cdef int32_t i, block
        for i in range(self._owned[slot] - 1, -1, -1):
            block = table.blocks[i]
            self._blocks[block].references -= 1
            if self._blocks[block].references == 0:
                self._link_before(block, 0)
                self.free_blocks += 1
        self._owned[slot] = 0
        table.num_hashed = 0
        self._skipped[slot] = 0
        return 0

    def forget(self):
        """See KVCache."""
        cdef int32_t block
        for block in range(1, self._num_records):
            if self._blocks[block].hash != 0:
                self._drop(self._blocks[block].hash)
                self._blocks[block].hash = 0

    def follow(self):
        """Return a CacheLog of what enters and leaves the prefix cache from now on; it must still be empty."""
        if self.free_blocks < self.num_blocks or self._cached.size:
            raise ValueError("a cache can be followed only from its beginning")
        self._log = CacheLog()
        return self._log

    # ---- the debug face

    @property
    def num_cached_hashes(self):
        """Texts that can be found."""
        return self._cached.size

    def check(self, _owned_total=None):
        """Raise RuntimeError unless free list, references, tables and prefix cache agree."""
        cdef int32_t block, findable = 0
        BlockPool.check(self)
        for block in range(1, self._num_records):
            findable += self._blocks[block].hash != 0 and self._cached.get(self._blocks[block].hash) == block
        self._cached.check()
        if findable != self._cached.size:
            raise RuntimeError(f"{self._cached.size} texts can be found, {findable} blocks are where they are found")
