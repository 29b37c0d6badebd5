"""KV blocks with an identity: free queue, owners, block tables, prefix cache.

Source: the behaviour of vLLM 0.32.0, vllm/v1/core/{block_pool,kv_cache_manager,kv_cache_utils}.py, for one group of
full-attention layers. Block 0 is the null block. Blocks are freed tail first; those without a hash go to the front of
the free queue and are reused first, the others to the back, where they can be hit until they are reused. Full blocks
are cached when they are allocated, before they are computed: a request admitted in the same iteration hits them.

Text that only its own request could hit again (see content.pxd) is not hashed and not listed in the prefix cache: its
blocks carry a hash made from row and block number, and `ReturningBlocks` finds them after a preemption.
"""
from libc.stdint cimport INT64_MAX
from libc.string cimport memcpy, memset
cimport cython

from simulator.kv.base cimport blocks_for
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.content cimport Content, Cursor
from simulator.kv.fences cimport Fences
from simulator.kv.members cimport Member
from simulator.kv.prefix_cache cimport PRIVATE, Block
from simulator.kv.returning cimport private_hash


@cython.final
cdef class PagedKV(BlockPool):
    """Blocks of one replica, each with its content.

    num_blocks, block_size : as for KVCache.
    content : the texts of the requests.
    enable_prefix_caching : full blocks are cached.
    append_unhashed : vLLM 0.10: freed blocks without a hash go to the back of the free queue like the others.
    hashes_ahead : tokens behind a block that its hash covers.
    drops_last_hit : a drafter needs the model's output for the last block found, which is thus computed again.
    """

    def __cinit__(self, int32_t num_blocks, int32_t block_size, Content content, bint enable_prefix_caching=True,
                  bint append_unhashed=False, bint drops_last_hit=False, int32_t hashes_ahead=0):
        self._append_unhashed, self._drops_last_hit = append_unhashed, drops_last_hit
        self.caches = enable_prefix_caching
        self.finds_outputs = enable_prefix_caching and content.has_public_outputs
        self._returning = ReturningBlocks()
        self._prefixes = PrefixCache()
        self.hashes_ahead = self._prefixes.ahead = hashes_ahead
        self._members = Members(block_size)

    cdef int reserve_groups(self, int32_t count) except -1:
        BlockPool.reserve_groups(self, count)
        return self._members.reserve_groups(count)

    cdef void turn_to(self, int32_t group) noexcept nogil:
        BlockPool.turn_to(self, group)
        self._members.turn_to(group)

    cdef int _relocate(self, int32_t num_records) except -1 nogil:
        return self._prefixes.relocate(self._blocks, num_records)

    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil:
        self._members.reserve(num_slots)
        return BlockPool.reserve_slots(self, num_slots)

    # ---- prefix cache

    cdef int32_t lookup(self, int32_t row, int32_t num_tokens) except -1 nogil:
        cdef int32_t found = self._find(row, (num_tokens - 1) // self.block_size)
        return self._find(row, found - 1) if found > 0 and self._drops_last_hit else found

    cdef int32_t _find(self, int32_t row, int32_t most) except -1 nogil:
        cdef int32_t num_public, found = 0, i
        self._free_hits = 0
        memset(&self._hits_cursor, 0, sizeof(Cursor))
        if not self._caching or most <= 0:
            return 0
        if most > self._room_hits:
            self._grow_hits(most)
        num_public = min(self._shared_blocks(row), most)
        if num_public > 0:
            found = self._prefixes.find_text(self._content, row, self.block_size, num_public, self._hits,
                                             &self._hits_cursor)
        if found == num_public and self._returning.size > 0:
            found = self._returning.find(row, found, most, self._blocks, self._hits)
        for i in range(found):
            self._free_hits += self._blocks[self._hits[i]].references == 0
        return found

    cdef int32_t _shared_blocks(self, int32_t row) noexcept nogil:
        return max(self._content.public_tokens(row) - self.hashes_ahead, 0) // self.block_size

    cdef int32_t most_hits(self, int32_t row, int32_t num_tokens) noexcept nogil:
        cdef int32_t most = (num_tokens - 1) // self.block_size
        if not self._caching:
            return 0
        if not self._content.has_been_preempted(row):
            most = min(most, self._shared_blocks(row))
        return max(most - self._drops_last_hit, 0)

    cdef int cache(self, int32_t slot, int64_t known_tokens) except -1 nogil:
        cdef Table* table = &self._tables[slot]
        cdef int32_t full = <int32_t>(known_tokens // self.block_size), i
        if not self._caching or full <= table.num_hashed:
            return 0
        if table.num_hashed < table.num_public:
            self._prefixes.insert_text(self._content, table.row, self.block_size, table.blocks, table.num_hashed,
                                       min(full, table.num_public), &table.cursor)
        for i in range(max(table.num_hashed, table.num_public), full):
            self._blocks[table.blocks[i]].hash = private_hash(table.row, i)
            self._blocks[table.blocks[i]].chain = PRIVATE
        table.num_hashed = full
        return 0

    # ---- allocation

    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil:
        cdef Table* table = &self._tables[slot]
        cdef int32_t owned = self._owned[slot]
        cdef int32_t have = owned + hits
        cdef int32_t revived = self._free_hits if hits > 0 else 0
        cdef int32_t need = max(blocks_for(slots, self.block_size) - have, 0)
        cdef int32_t whole = max(blocks_for(full_tokens, self.block_size) - have, need)
        cdef int32_t i, block
        if whole + revived + watermark > self.free_blocks:
            return 0
        self._prepare(table, have + need, need)
        if owned == 0:
            table.row = row
            table.num_hashed = hits
            table.num_public = self._shared_blocks(row)
            if hits > 0:
                table.cursor = self._hits_cursor
                memcpy(table.blocks, self._hits, hits * sizeof(int32_t))
            else:
                memset(&table.cursor, 0, sizeof(Cursor))
        for i in range(hits):
            block = self._hits[i]
            if self._blocks[block].references == 0:
                self._unlink(block)
            self._blocks[block].references += 1
            if self.fences is not None:
                self.fences.touch(block)
        self.free_blocks -= revived
        self._take(table, have, need)
        self._owned[slot] = have + need
        return 1 if self.cache(slot, known_tokens) == 0 else -1

    cdef int _take(self, Table* table, int32_t owned, int32_t count) except -1 nogil:
        cdef Block* blocks = self._blocks
        cdef int32_t block = blocks[0].next, i
        for i in range(owned, owned + count):
            if blocks[block].hash != 0:
                self.evictions += 1
                if self._evicted is not None:
                    self._note_eviction(block)
                self._prefixes.remove(block)
            blocks[block].references = 1
            table.blocks[i] = block
            if self.fences is not None:
                self.fences.touch(block)
            block = blocks[block].next
        self._set_front(block)
        self.free_blocks -= count
        return 0

    cdef int release(self, int32_t slot, bint returns) except -1 nogil:
        cdef Table* table = &self._tables[slot]
        cdef Block* blocks = self._blocks
        cdef int32_t front = blocks[0].next, i, block       # unhashed blocks go before it, in the order they are freed
        if returns and table.num_hashed > table.num_public:
            self._returning.keep(table.row, table.blocks, table.num_public, table.num_hashed)
        elif not returns and self._returning.size > 0:
            self._returning.drop(table.row)
        for i in range(self._owned[slot] - 1, -1, -1):
            block = table.blocks[i]
            blocks[block].references -= 1
            if blocks[block].references == 0:
                self._link_before(block, 0 if self._append_unhashed or blocks[block].hash != 0 else front)
                self.free_blocks += 1
                if front == 0 and not self._append_unhashed and blocks[block].hash != 0:
                    front = block
        self._owned[slot] = 0
        table.num_hashed = 0
        return 0

    # ---- a tier that reads blocks

    def put_fences(self):
        """See KVCache."""
        self.fences = Fences()

    cdef int fence(self, int32_t slot, int32_t begin, int32_t end, int64_t reader) except -1 nogil:
        cdef int32_t i
        for i in range(begin, end):
            self.fences.put_up(self._tables[slot].blocks[i], reader, i)
        return 0

    cdef bint is_held(self, int32_t block) noexcept nogil:
        return self._blocks[block].references > 0

    cdef int announce_all(self, int32_t slot) except -1 nogil:
        cdef int32_t i
        for i in range(self._owned[slot] if self.fences is not None else 0):
            self.fences.touch(self._tables[slot].blocks[i])
        return 0

    # ---- the bulk-decode cohort

    cdef int join(self, int32_t slot, int32_t phase, int64_t order) except -1 nogil:
        self._members.join(slot, phase, order)
        self._due[phase] += 1
        return 0

    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil:
        self._members.leave(slot, phase)
        self._due[phase] -= 1

    cdef void step_begin(self, int32_t phase) noexcept nogil:
        self._due_member = self._members.first[phase]
        self._full_member = -1
        if self._caching:
            self._full_member = self._members.first[(phase + 1 - self.unknown_tokens) % self.block_size]

    cdef int step_before(self, int64_t order) except -1 nogil:
        """Give due members their next block, and cache the blocks that others fill, by order."""
        cdef Table* tables = self._tables
        cdef const Member* members = self._members.members
        cdef int32_t due = self._due_member, full = self._full_member
        cdef int64_t due_order, full_order
        while True:
            due_order = members[due].order if due >= 0 else order
            full_order = members[full].order if full >= 0 else order
            if due_order < order and due_order <= full_order:
                self._prepare(&tables[due], self._owned[due] + 1, 1)
                self._take(&tables[due], self._owned[due], 1)
                self._owned[due] += 1
                due = members[due].after
            elif full_order < order:
                self.cache(full, <int64_t>(self._owned[full] - self.unknown_tokens) * self.block_size)
                full = members[full].after
            else:
                break
        self._due_member = due
        self._full_member = full
        return 0

    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil:
        cdef int32_t _
        for _ in range(count):
            self.step_begin(phase)
            self.step_before(INT64_MAX)
            phase = phase + 1 if phase + 1 < self.num_phases else 0
        return 0

    def forget(self):
        """See KVCache."""
        self._prefixes.clear(self._num_records)

    # ---- the debug face

    def follow(self):
        """Return a CacheLog of hashes that enter and leave the prefix cache from now on; it must still be empty."""
        if self.free_blocks < self.num_blocks or self.num_cached_hashes:
            raise ValueError("a cache can be followed only from its beginning")
        self._prefixes.log = CacheLog(self._prefixes.log)
        return self._prefixes.log

    @property
    def num_cached_hashes(self):
        """Distinct texts in cached blocks; vLLM's table has an entry for each."""
        cdef int32_t block, public = 0, private = 0
        for block in range(1, self._num_records):
            public += self._blocks[block].hash != 0 and self._blocks[block].chain >= 0
            private += self._blocks[block].hash != 0 and self._blocks[block].chain == PRIVATE
        if self._returning.num_entries == 0:                # no private text was computed twice
            return public + private
        return public + len({self._blocks[block].hash for block in range(1, self._num_records)
                             if self._blocks[block].hash != 0 and self._blocks[block].chain == PRIVATE})

    def check(self, _owned_total=None):
        """Raise RuntimeError unless queue, references, tables and prefix cache agree."""
        cdef int32_t block
        BlockPool.check(self)
        for block in range(1, self._num_records):
            if (self._blocks[block].hash != 0 and self._blocks[block].chain != PRIVATE
                    and self._prefixes.find(self._blocks[block].hash) == 0):
                raise RuntimeError(f"block {block} has a hash the prefix cache does not know")
