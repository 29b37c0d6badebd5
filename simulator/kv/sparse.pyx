"""KV blocks with records only for blocks that a lookup may find."""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from simulator.core.memory cimport resize
from simulator.kv.base cimport blocks_for
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.fences cimport Fences
from simulator.kv.members cimport Member
from simulator.kv.prefix_cache cimport Block


cdef class SparseKV(KVCache):
    """KV blocks of one replica with prefix caching, as vLLM keeps them.

    num_blocks, block_size : as for KVCache.
    content : the texts of the requests.
    append_unhashed, drops_last_hit : see PagedKV.
    """

    def __cinit__(self, int32_t num_blocks, int32_t block_size, Content content, bint append_unhashed=False,
                  bint drops_last_hit=False, int32_t hashes_ahead=0):
        self._content, self.caches = content, True
        self.finds_outputs = content.has_public_outputs
        self._append_unhashed, self._drops_last_hit = append_unhashed, drops_last_hit
        self._cached = Stretches()
        self.hashes_ahead = self._cached.prefixes.ahead = hashes_ahead
        self._members = Members(block_size)
        self._full_member = -1

    def __dealloc__(self):
        cdef int32_t slot
        for slot in range(self.num_slots if self._holdings != NULL else 0):
            free(self._holdings[slot].shared)
            free(self._holdings[slot].chain.runs)
        free(self._holdings)
        free(self._hits)

    def share_content(self, Content content):
        """See KVCache."""
        self._content = content
        if self._runs is not None:
            self._runs.read(content)

    cdef int reserve_groups(self, int32_t count) except -1:
        KVCache.reserve_groups(self, count)
        return self._members.reserve_groups(count)

    cdef void turn_to(self, int32_t group) noexcept nogil:
        KVCache.turn_to(self, group)
        self._members.turn_to(group)

    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil:
        cdef int32_t before = self.num_slots
        if num_slots <= before:
            return 0
        self._members.reserve(num_slots)
        resize(&self._holdings, num_slots * sizeof(Holding))
        memset(self._holdings + before, 0, (num_slots - before) * sizeof(Holding))
        return KVCache.reserve_slots(self, num_slots)

    # ---- prefix cache

    cdef int32_t lookup(self, int32_t row, int32_t num_tokens) except -1 nogil:
        cdef int32_t found = self._find(row, (num_tokens - 1) // self.block_size)
        return self._find(row, found - 1) if found > 0 and self._drops_last_hit else found

    cdef int32_t _find(self, int32_t row, int32_t most) except -1 nogil:
        cdef int32_t num_public, found
        self._public_hits = self._free_hits = 0
        if most <= 0:
            return 0
        num_public = min(self._shared_blocks(row), most)
        if num_public > 0:
            self._lookup_public(row, num_public)
            if self._public_hits < num_public:
                return self._public_hits
        found = self._cached.find(row, num_public, most)
        self._free_hits += found - num_public
        return found

    cdef int _lookup_public(self, int32_t row, int32_t num_public) except -1 nogil:
        cdef int32_t i
        if self._runs is not None:
            self._public_hits = self._runs.find(row, num_public)
            self._free_hits = self._runs.free_hits
        if not self._lists_each:
            return 0
        if num_public > self._room_hits:
            resize(&self._hits, 2 * <size_t>num_public * sizeof(int32_t))
            self._room_hits = 2 * num_public
        self._public_hits = self._cached.prefixes.find_text(self._content, row, self.block_size, num_public, self._hits,
                                                            &self._hits_cursor)
        for i in range(self._public_hits):
            self._free_hits += self._cached.blocks[self._hits[i]].references == 0
        return 0

    cdef int32_t free_hits(self) noexcept nogil:
        return self._free_hits

    cdef int32_t blank_blocks(self) noexcept nogil:
        return self.free_blocks - self._cached.size

    cdef int32_t most_hits(self, int32_t row, int32_t num_tokens) noexcept nogil:
        cdef int32_t most = (num_tokens - 1) // self.block_size
        if not self._content.has_been_preempted(row):
            most = min(most, self._shared_blocks(row))
        return max(most - self._drops_last_hit, 0)

    cdef int32_t _shared_blocks(self, int32_t row) noexcept nogil:
        return max(self._content.public_tokens(row) - self.hashes_ahead, 0) // self.block_size

    cdef int cache(self, int32_t slot, int64_t known_tokens) except -1 nogil:
        return self._cache(&self._holdings[slot], known_tokens)

    cdef inline int _cache(self, Holding* holding, int64_t known_tokens) except -1 nogil:
        cdef int32_t full
        if known_tokens < <int64_t>(holding.num_hashed + 1) * self.block_size:
            return 0
        full = <int32_t>(known_tokens // self.block_size)
        if holding.num_hashed < holding.num_public:
            self._publish(holding, min(full, holding.num_public))
        holding.num_hashed = full
        return 0

    cdef int _publish(self, Holding* holding, int32_t full) except -1 nogil:
        """Cache its blocks of shared text up to `full`."""
        cdef int32_t i
        if not self._lists_each:
            if self._runs is None:
                self._open_runs()
            return self._runs.insert(holding.row, holding.num_hashed, full, &holding.chain)
        self._cached.prepare(full - holding.num_hashed)
        if full > holding.room:
            resize(&holding.shared, 2 * <size_t>full * sizeof(int32_t))
            holding.room = 2 * full
        for i in range(holding.num_hashed, full):
            holding.shared[i] = self._cached.hold()
        return self._cached.prefixes.insert_text(self._content, holding.row, self.block_size, holding.shared,
                                                 holding.num_hashed, full, &holding.cursor)

    cdef int _open_runs(self) except -1 nogil:
        with gil:
            self._runs = Runs(self._cached, self._content, self.block_size, self.hashes_ahead)
        return 0

    # ---- allocation

    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil:
        cdef int32_t taken = self._taken(slot, hits, slots, full_tokens, watermark)
        if taken < 0:
            return 0
        if self._owned[slot] == 0:
            self._begin(&self._holdings[slot], row, hits)
        self._owned[slot] += hits + taken - (self._free_hits if hits > 0 else 0)
        self.free_blocks -= taken
        if self.free_blocks < self._cached.size:
            self._cached.evict(self._cached.size - self.free_blocks)
        self._cache(&self._holdings[slot], known_tokens)
        return 1

    cdef int _begin(self, Holding* holding, int32_t row, int32_t hits) except -1 nogil:
        """Let a request begin with all hits of the last lookup, or with nothing."""
        holding.row = row
        holding.num_hashed = holding.num_found = hits
        holding.num_public = self._shared_blocks(row)
        holding.pieces = 0
        memset(&holding.cursor, 0, sizeof(Cursor))
        if hits == 0:
            return 0
        if self._lists_each:
            self._hold_hits(holding)
        elif self._public_hits > 0:
            self._runs.take(&holding.chain)
        if hits > self._public_hits:
            self._cached.prepare(2 * self._cached.num_pieces)
            holding.pieces = self._cached.take()
        return 0

    cdef int _hold_hits(self, Holding* holding) except -1 nogil:
        """Let a request hold the blocks of shared text that were found, each by itself."""
        cdef Block* blocks = self._cached.blocks
        cdef int32_t i
        if self._public_hits > holding.room:
            resize(&holding.shared, 2 * <size_t>self._public_hits * sizeof(int32_t))
            holding.room = 2 * self._public_hits
        holding.cursor = self._hits_cursor
        if self._public_hits > 0:
            memcpy(holding.shared, self._hits, self._public_hits * sizeof(int32_t))
        for i in range(self._public_hits):
            if blocks[self._hits[i]].references == 0:
                self._cached.take_block(self._hits[i])
            blocks[self._hits[i]].references += 1
            if self.fences is not None:
                self.fences.touch(self._hits[i])
        return 0

    cdef int release(self, int32_t slot, bint returns) except -1 nogil:
        cdef Holding* holding = &self._holdings[slot]
        cdef int32_t shared = min(holding.num_hashed, holding.num_public)
        self._cached.prepare(2)
        if self._append_unhashed and self._owned[slot] > holding.num_hashed:
            self._cached.append_nobodys(self._owned[slot] - holding.num_hashed)
        if holding.num_hashed > holding.num_public:
            self._free_private(holding, returns)
        if not returns:
            self._cached.forget_row(holding.row)
        self.free_blocks += self._owned[slot] - shared
        if self._lists_each:
            self.free_blocks += self._let_go(holding, shared)
        elif shared > 0:
            self.free_blocks += self._runs.release(&holding.chain, shared)
        self._owned[slot] = holding.num_hashed = 0
        holding.read_begin = holding.read_end = 0
        return 0

    cdef int32_t _let_go(self, Holding* holding, int32_t shared) except -1 nogil:
        """Hold its first blocks no longer, the last first, each by itself; return how many are free now."""
        cdef Block* blocks = self._cached.blocks
        cdef int32_t num_free = 0, i
        for i in range(shared - 1, -1, -1):
            blocks[holding.shared[i]].references -= 1
            if blocks[holding.shared[i]].references == 0:
                self._cached.append_block(holding.shared[i])
                num_free += 1
        return num_free

    cdef int _free_private(self, Holding* holding, bint returns) except -1 nogil:
        """Free its private blocks that are cached: the tail first, the blocks found by a lookup last."""
        cdef int32_t element = holding.pieces, begin = max(holding.num_public, holding.num_found), following
        if not returns:
            self._append_nobodys(holding)
        elif holding.num_hashed > begin:
            self._cached.append_private(holding.row, begin, holding.num_hashed)
        while element != 0:
            following = self._cached.stretches[element].sibling
            if returns:
                self._cached.append_piece(element)
            else:
                self._cached.drop_piece(element)
            element = following
        holding.pieces = 0
        return 0

    # ---- a tier that reads blocks

    def put_fences(self):
        """See KVCache; reuse of blocks without a hash is not noted."""
        self._lists_each = True
        self.fences = self._cached.fences = Fences()

    cdef int fence(self, int32_t slot, int32_t begin, int32_t end, int64_t reader) except -1 nogil:
        cdef Holding* holding = &self._holdings[slot]
        cdef int32_t shared = min(holding.num_hashed, holding.num_public), i
        for i in range(begin, min(end, shared)):
            self.fences.put_up(holding.shared[i], reader, i)
        holding.reader = reader
        holding.read_begin, holding.read_end = max(begin, shared), min(end, holding.num_hashed)
        if holding.read_begin < holding.read_end:
            self.fences.put_up_many(reader, holding.read_end - holding.read_begin)
        return 0

    cdef bint is_held(self, int32_t block) noexcept nogil:
        return True                 # a sequence that gets a block keeps it, until the iteration is formed

    cdef int announce_all(self, int32_t slot) except -1 nogil:
        cdef const Holding* holding = &self._holdings[slot]
        cdef int32_t i
        for i in range(min(holding.num_hashed, holding.num_public) if self.fences is not None else 0):
            self.fences.touch(holding.shared[i])
        return 0

    cdef int _append_nobodys(self, Holding* holding) except -1 nogil:
        """Append the private blocks of a request that has left, the tail first."""
        cdef int32_t begin = holding.num_public, end = holding.num_hashed
        if holding.read_begin < holding.read_end:
            if holding.read_end < end:
                self._cached.append_nobodys(end - holding.read_end)
            self._cached.append_read(holding.reader, holding.read_begin, holding.read_end)
            end = holding.read_begin
        return self._cached.append_nobodys(end - begin) if begin < end else 0

    # ---- the bulk-decode cohort

    cdef int join(self, int32_t slot, int32_t phase, int64_t order) except -1 nogil:
        self._due[phase] += 1
        if self._holdings[slot].num_hashed < self._holdings[slot].num_public:
            self._members.join(slot, phase, order)
        return 0

    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil:
        self._due[phase] -= 1
        if self._holdings[slot].num_hashed < self._holdings[slot].num_public:
            self._members.leave(slot, phase)

    cdef bint may_join_multi_token(self, int32_t slot) noexcept nogil:
        return self._holdings[slot].num_hashed >= self._holdings[slot].num_public

    cdef void settle(self, int32_t slot, int64_t num_computed) noexcept nogil:
        cdef Holding* holding = &self._holdings[slot]
        self._owned[slot] = blocks_for(num_computed + self.ahead_tokens, self.block_size)
        if holding.num_hashed >= holding.num_public:
            holding.num_hashed = max(
                holding.num_hashed, <int32_t>((num_computed - self.unknown_tokens) // self.block_size))

    cdef int32_t owned_blocks(self, int32_t slot, bint is_member, int64_t num_computed) noexcept nogil:
        return blocks_for(num_computed + self.ahead_tokens, self.block_size) if is_member else self._owned[slot]

    cdef void step_begin(self, int32_t phase) noexcept nogil:
        cdef int32_t slot
        self.free_blocks -= self._due[phase]
        if self.free_blocks < self._cached.size:
            self._cached.evict(self._cached.size - self.free_blocks)
        if self._members.size > 0:
            slot = self._members.first[phase]
            while slot >= 0:
                self._owned[slot] += 1
                slot = self._members.members[slot].after
            self._full_member = self._members.first[(phase + 1 - self.unknown_tokens) % self.block_size]

    cdef int step_before(self, int64_t order) except -1 nogil:
        """Cache the blocks that members fill, by order; they have got all their blocks."""
        cdef const Member* members = self._members.members
        cdef int32_t slot = self._full_member
        while slot >= 0 and members[slot].order < order:
            self.cache(slot, <int64_t>(self._owned[slot] - self.unknown_tokens) * self.block_size)
            slot = members[slot].after
        self._full_member = slot
        return 0

    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil:
        cdef int32_t _
        for _ in range(count):
            if self._members.size > 0:
                self.step_begin(phase)
                self.step_before(INT64_MAX)
            else:
                self.free_blocks -= self._due[phase]
            phase = phase + 1 if phase + 1 < self.num_phases else 0
        if self.free_blocks < self._cached.size:
            self._cached.evict(self._cached.size - self.free_blocks)
        return 0

    def forget(self):
        """See KVCache."""
        self._cached.evict(self._cached.size)

    # ---- the debug face

    def follow(self):
        """Return a CacheLog of hashes that enter and leave the prefix cache from now on; it must still be empty."""
        if self.free_blocks < self.num_blocks or self._cached.size > 0:
            raise ValueError("a cache can be followed only from its beginning")
        self._lists_each = True
        self._cached.prefixes.log = CacheLog(self._cached.prefixes.log)
        return self._cached.prefixes.log

    def check(self, owned_total):
        """Raise RuntimeError unless free and owned blocks make up the pool, and the prefix cache agrees.

        owned_total : blocks that all sequences own, as counted by the caller; shared ones as often as they are held.
        """
        held, references = self._cached.num_held()
        self._cached.check()
        counted = sum(min(self._holdings[slot].num_hashed, self._holdings[slot].num_public)
                      for slot in range(self.num_slots))
        if counted != references:
            raise RuntimeError(f"shared blocks are held {counted} times, {references} counted")
        if self.free_blocks < self._cached.size:
            raise RuntimeError(f"{self.free_blocks} free blocks, of which {self._cached.size} hold something")
        if self.free_blocks + owned_total - references + held != self.num_blocks:
            raise RuntimeError(f"{self.free_blocks} free + {owned_total} owned, {held} blocks {references} times, "
                               f"!= {self.num_blocks} blocks")
