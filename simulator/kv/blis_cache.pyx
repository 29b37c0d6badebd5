"""KV blocks as BLIS keeps them.

Unlike vLLM's (see paged.pyx): all freed blocks go to the back of the free list, hashed or not. Of two blocks with the
same text a lookup finds the one cached last; once a block is reused, its hash finds nothing any more, even if another
block holds that text. A lookup may find a prompt whole. Source: inference-sim (BLIS) at f90a1e3a, sim/kv/cache.go.
"""
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
cimport cython

from simulator.core.memory cimport resize
from simulator.kv.base cimport blocks_for
from simulator.kv.content cimport Content
from simulator.kv.mirror cimport ABSENT, BELOW, HELD, IS_PUT_OFF, NO_WAIT, Place
from simulator.kv.returning cimport key_of


@cython.final
cdef class BlisKV(BlockPool):
    """Blocks of one replica, each with its content.

    num_blocks, block_size : as for KVCache.
    content : the texts of the requests.
    enable_prefix_caching : full blocks are cached.
    """

    def __cinit__(self, int32_t num_blocks, int32_t block_size, Content content, bint enable_prefix_caching=True):
        self._cached, self._kept_by = HashMap(), HashMap()

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._num_kept):
            free(self._kept[i].blocks)
        free(self._kept)
        free(self._skipped)
        free(self._reached)
        free(self._own_hits)

    def mirror_to(self, Mirror mirror):
        """Keep a copy of all full blocks in host memory; call it before the first request arrives."""
        self._mirror = mirror

    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil:
        cdef int32_t before = self.num_slots
        if num_slots <= before:
            return 0
        resize(&self._skipped, num_slots * sizeof(int64_t))
        memset(self._skipped + before, 0, (num_slots - before) * sizeof(int64_t))
        resize(&self._reached, num_slots * sizeof(int64_t))
        memset(self._reached + before, 0, (num_slots - before) * sizeof(int64_t))
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
        cdef int64_t skipped = self._skipped[slot]
        cdef int32_t full, i
        cdef uint64_t hash
        if not self._caching or skipped != 0 and self._mirror is None:      # the text is no prefix of anything
            return 0
        if self.block_size == 1:
            known_tokens = min(known_tokens, self._content.prompt_tokens(table.row))    # outputs are not cached
        full = <int32_t>((known_tokens - skipped) // self.block_size)
        for i in range(table.num_hashed, full):
            hash = self._content.advance(table.row, self.block_size, &table.cursor)
            if self._log is not None and self._cached.get(hash) < 0:
                self._log.note(hash, True)
            self._cached.put(hash, table.blocks[i])
            self._blocks[table.blocks[i]].hash = hash
            table.num_hashed = i + 1
        return 0

    # ---- allocation

    cdef int skip(self, int32_t slot, int32_t row, int64_t num_tokens) except -1 nogil:
        self._tables[slot].row = row
        self._skipped[slot] = self._reached[slot] = num_tokens
        if self._kept_by.size > 0 and self._take_kept(slot, row):
            self._skipped[slot] = num_tokens - <int64_t>self._owned[slot] * self.block_size
            self._chain(slot, row)
        elif self._mirror is not None:
            self._mirror.was_served(row)
        return 0

    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil:
        if self._mirror is not None and self._mirror.moves:
            return self._allocate_moving(slot, row, hits, slots, known_tokens)
        if self._mirror is not None:
            return self._allocate_mirrored(slot, row, hits, slots, known_tokens)
        return self._allocate(slot, row, hits, slots, known_tokens)

    cdef int _allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots,
                       int64_t known_tokens) except -1 nogil:
        cdef Table* table = &self._tables[slot]
        cdef int32_t have = self._owned[slot] + hits
        cdef int32_t revived = self._free_hits if hits > 0 else 0
        cdef int32_t need = max(blocks_for(slots - self._skipped[slot], self.block_size) - have, 0)
        cdef int32_t i
        if need + revived > self.free_blocks:
            return 0
        self._prepare(table, have + need, need)
        if self._owned[slot] == 0:
            table.row = row
            table.num_hashed = hits
            memset(&table.cursor, 0, sizeof(Cursor))
        if hits > 0:
            table.cursor = self._hits_cursor
            memcpy(table.blocks, self._hits, hits * sizeof(int32_t))
            table.cursor.hash = self._blocks[self._hits[hits - 1]].hash     # may have been reused: of another text
        elif self._owned[slot] == 0 and self._skipped[slot] != 0 and self._mirror is not None:
            self._chain(slot, row)
        for i in range(hits):
            if self._blocks[self._hits[i]].references == 0:
                self._unlink(self._hits[i])
            self._blocks[self._hits[i]].references += 1
        self.free_blocks -= revived
        self._take(table, have, need)
        self._owned[slot] = have + need
        self._reached[slot] = slots
        return 1 if self.cache(slot, known_tokens) == 0 else -1

    # ---- a mirror in host memory

    cdef int mirror(self, int32_t slot) except -1 nogil:
        cdef int32_t count = self._owned[slot], i
        if self._mirror.prompts_only:
            count = min(count, self._content.prompt_tokens(self._tables[slot].row) // self.block_size)
        for i in range(count):
            if self._blocks[self._tables[slot].blocks[i]].hash != 0:
                self._mirror.keep(self._blocks[self._tables[slot].blocks[i]].hash)
        return 0

    cdef int _allocate_mirrored(self, int32_t slot, int32_t row, int32_t hits, int64_t slots,
                                int64_t known_tokens) except -1 nogil:
        """Bring the prompt's blocks back from the mirror, and use them if they reach farther than the hits.

        A waiting request that finds no room for the rest of its prompt keeps the blocks claimed so far.
        """
        cdef bint waits = self._owned[slot] == 0 and self._skipped[slot] == 0
        cdef bint owns_nothing = self._owned[slot] == 0     # also a running one: its prompt was found whole
        cdef int done
        if waits:
            self._reached[slot] = <int64_t>hits * self.block_size
            if self._kept_by.size > 0 and self._take_kept(slot, row):
                self._skipped[slot] = <int64_t>(hits - self._owned[slot]) * self.block_size
                self._chain(slot, row)
                hits, owns_nothing = 0, False
        if owns_nothing and self._mirror.has_levels and self._is_put_off(slot, row, hits):
            return 0
        done = self._allocate_anyway(slot, row, hits, waits, slots, known_tokens)
        if owns_nothing and done == 1:
            self._mirror.was_served(row)
        if waits and done == 0:
            self._skipped[slot] = 0
            if self._owned[slot] > 0:
                self._keep(slot, row)
        return done

    cdef int _allocate_anyway(self, int32_t slot, int32_t row, int32_t hits, bint waits, int64_t slots,
                              int64_t known_tokens) except -1 nogil:
        cdef int64_t begin = self._reached[slot]
        cdef int32_t free_hits = self._free_hits, done
        cdef Cursor cursor = self._hits_cursor
        if self._mirror.when_full:
            done = self._allocate(slot, row, hits, slots, known_tokens)
            if done != 0:
                return done
        if hits > self._room_own_hits:
            resize(&self._own_hits, 2 * <size_t>hits * sizeof(int32_t))
            self._room_own_hits = 2 * hits
        if hits > 0:
            memcpy(self._own_hits, self._hits, hits * sizeof(int32_t))
        if self._reload(slot, row, <int32_t>(begin // self.block_size) if waits else 0) > 0:
            done = self._use_reloaded(slot, row, begin, slots, known_tokens)
            if done >= 0:
                return done
        if hits > 0:
            memcpy(self._hits, self._own_hits, hits * sizeof(int32_t))
        self._free_hits, self._hits_cursor = free_hits, cursor
        return self._allocate(slot, row, hits, slots, known_tokens)

    cdef int32_t _reload(self, int32_t slot, int32_t row, int32_t hits) except -1 nogil:
        """Bring back the blocks of a prompt behind `hits` and the slot's own from the mirror; return their number."""
        cdef int32_t room = self.free_blocks, count = 0
        cdef int32_t place = 0 if self._mirror.when_full else max(self._owned[slot], hits)
        cdef Cursor cursor = self._behind(slot, row, place, hits)
        cdef Place where
        while self._seek(row, &place, &cursor):
            where = self._mirror.place_of(cursor.hash)
            if where == BELOW:
                self._gather(row, place, cursor)
                self._mirror.fetch()
            if where != HELD or count == room:
                break
            self._mirror.reload(cursor.hash)
            self._install(cursor.hash)
            count += 1
        return count

    cdef Cursor _behind(self, int32_t slot, int32_t row, int32_t place, int32_t hits) noexcept nogil:
        """Return the place where block `place` of a text begins, with the hash of the hit or own block before it."""
        cdef Cursor cursor
        memset(&cursor, 0, sizeof(Cursor))
        if place > 0:
            self._content.advance(row, <int32_t>(place * self.block_size), &cursor)
            cursor.hash = self._blocks[(self._hits if hits == place else self._tables[slot].blocks)[place - 1]].hash
        return cursor

    cdef bint _seek(self, int32_t row, int32_t* place, Cursor* cursor) noexcept nogil:
        """Move to the next block of a prompt that the KV cache lacks; False: there is none."""
        cdef int32_t most = self._content.prompt_tokens(row) // self.block_size
        while place[0] < most:
            place[0] += 1
            if self._cached.get(self._content.advance(row, self.block_size, cursor)) < 0:
                return True
        return False

    # ---- host memory to which blocks are moved

    cdef int _allocate_moving(self, int32_t slot, int32_t row, int32_t hits, int64_t slots,
                              int64_t known_tokens) except -1 nogil:
        """Allocate; without room bring all blocks back, and try again if the prompt then has more hits.

        Without more hits a second try would fail too: a block that is brought back stays free.
        """
        cdef bint waits = self._owned[slot] == 0 and self._skipped[slot] == 0
        cdef int64_t begin = <int64_t>hits * self.block_size if waits else self._reached[slot], reached
        cdef int64_t skipped = self._skipped[slot], held = 0 if waits else begin - skipped
        cdef int32_t found
        cdef int done = self._allocate(slot, row, hits, slots, known_tokens)
        if done != 0 or self._bring_back() == 0:
            return done
        found = self.lookup(row, self._content.prompt_tokens(row) + 1)
        reached = <int64_t>found * self.block_size
        if reached <= begin:
            return 0
        if waits and reached < slots:
            return self._allocate(slot, row, found, slots, known_tokens)
        self._skip_to(slot, row, min(reached, slots) - held)
        done = 1 if reached >= slots else self._allocate(slot, row, 0, slots, known_tokens)
        if done == 0:
            self._skip_to(slot, row, skipped)
        else:
            self._reached[slot] = slots
        return done

    cdef int _skip_to(self, int32_t slot, int32_t row, int64_t skipped) except -1 nogil:
        """Let the first tokens of the text, `skipped`, have no block; the next block follows on the last one."""
        self._tables[slot].row = row
        if self._owned[slot] == 0:
            self._tables[slot].num_hashed = 0
        self._skipped[slot] = skipped
        return self._chain(slot, row)

    cdef int32_t _bring_back(self) except -1 nogil:
        """Bring back from host memory all blocks with a hash that is not found here; return their number.

        With fewer free blocks than that, later blocks overwrite earlier ones.
        """
        cdef int32_t block = self._mirror.next_taken(0), count = 0
        cdef uint64_t hash
        while block != 0 and self.free_blocks > 0:
            hash = self._mirror.hash_of(block)
            if self._cached.get(hash) < 0:
                self._mirror.give_back(block)
                self._install(hash)
                count += 1
            block = self._mirror.next_taken(block)
        return count

    cdef int _move_out(self) except -1 nogil:
        """Move free blocks with a hash to host memory while it accepts them, in their order of reuse.

        O(free blocks): above the threshold, which is high where memory is short, there are few.
        """
        cdef int32_t last = self._blocks[0].prev, block = 0, following = self._blocks[0].next
        while block != last and self._mirror.takes(self.num_blocks - self.free_blocks, self.num_blocks):
            block, following = following, self._blocks[following].next
            if self._blocks[block].hash != 0:
                self._mirror.take(block, self._blocks[block].hash)
                self._drop(self._blocks[block].hash)
                self._blocks[block].hash = 0
                self._unlink(block)
                self._link_before(block, 0)
        return 0

    # ---- levels below the mirror

    cdef bint _is_put_off(self, int32_t slot, int32_t row, int32_t hits) except -1 nogil:
        """Put a request off once if some of its blocks are below the mirror; return whether it is put off."""
        cdef int32_t place = hits
        cdef Cursor cursor
        cdef Place where = HELD
        if self._mirror.wait_of(row) != NO_WAIT:
            return self._mirror.wait_of(row) == IS_PUT_OFF
        cursor = self._behind(slot, row, place, hits)
        while where == HELD and self._seek(row, &place, &cursor):
            where = self._mirror.place_of(cursor.hash)
        if where == HELD or where == ABSENT:
            return False
        self._gather(row, place, cursor)
        self._mirror.put_off(row)
        return True

    cdef int _gather(self, int32_t row, int32_t place, Cursor cursor) except -1 nogil:
        """Give the mirror the run of blocks that are read together, from the one before `place` on."""
        cdef int32_t next_place = place
        self._mirror.begin_run(cursor.hash)
        while self._seek(row, &next_place, &cursor) and next_place == place + 1 and self._mirror.extend_run(
                cursor.hash):
            place += 1
        return 0

    cdef int32_t _install(self, uint64_t hash) except -1 nogil:
        """Let the first free block hold the text of a hash; it stays free, and becomes the last to be reused."""
        cdef int32_t block
        self._prepare(&self._tables[0], 0, 1)
        block = self._blocks[0].next
        self._set_front(self._blocks[block].next)
        if self._blocks[block].hash != 0:
            self._drop(self._blocks[block].hash)
        self._blocks[block].hash = hash
        self._cached.put(hash, block)
        if self._log is not None:
            self._log.note(hash, True)
        self._link_before(block, 0)
        return block

    cdef int _use_reloaded(self, int32_t slot, int32_t row, int64_t begin, int64_t slots,
                           int64_t known_tokens) except -2 nogil:
        """Allocate with all blocks found now; -1: they reach no farther than before."""
        cdef int32_t found = self.lookup(row, self._content.prompt_tokens(row) + 1), last = min(
            found, blocks_for(slots, self.block_size))
        cdef int32_t first = blocks_for(begin, self.block_size) if self._owned[slot] > 0 else 0
        cdef int64_t reached = min(<int64_t>found * self.block_size, slots), held = begin - self._skipped[slot]
        if <int64_t>found * self.block_size <= begin:
            return -1
        if first < last:
            self._claim(slot, row, first, last)
            held = <int64_t>self._owned[slot] * self.block_size
        self._skipped[slot] = reached - held
        self._reached[slot] = reached
        self._chain(slot, row)
        return 1 if reached == slots else self._allocate(slot, row, 0, slots, known_tokens)

    cdef int _chain(self, int32_t slot, int32_t row) except -1 nogil:
        """Let the hash of the next block follow on the last block's, whatever text that holds."""
        cdef Table* table = &self._tables[slot]
        cdef int32_t hashed = table.num_hashed
        memset(&table.cursor, 0, sizeof(Cursor))
        self._content.advance(row, <int32_t>(<int64_t>hashed * self.block_size + self._skipped[slot]), &table.cursor)
        table.cursor.hash = self._blocks[table.blocks[hashed - 1]].hash if hashed > 0 else 0
        return 0

    cdef bint _take_kept(self, int32_t slot, int32_t row) except -1 nogil:
        """Give a sequence the blocks that its request kept while it waited; False: it kept none."""
        cdef int32_t entry = self._kept_by.remove(key_of(row))
        cdef Kept* kept = &self._kept[entry]
        if entry < 0:
            return False
        self._prepare(&self._tables[slot], kept.count, 0)
        if kept.count > 0:
            memcpy(self._tables[slot].blocks, kept.blocks, kept.count * sizeof(int32_t))
        self._tables[slot].row = row
        self._tables[slot].num_hashed = self._owned[slot] = kept.count
        kept.row = -1
        return True

    cdef int _keep(self, int32_t slot, int32_t row) except -1 nogil:
        cdef int32_t entry = 0, before = self._num_kept
        cdef Kept* kept
        while entry < before and self._kept[entry].row >= 0:        # few: only heads of queues
            entry += 1
        if entry == before:
            resize(&self._kept, (before + 1) * sizeof(Kept))
            memset(&self._kept[before], 0, sizeof(Kept))
            self._num_kept += 1
        kept = &self._kept[entry]
        resize(&kept.blocks, self._owned[slot] * sizeof(int32_t))
        if self._owned[slot] > 0:
            memcpy(kept.blocks, self._tables[slot].blocks, self._owned[slot] * sizeof(int32_t))
        kept.row, kept.count = row, self._owned[slot]
        self._owned[slot] = 0
        return self._kept_by.put(key_of(row), entry)

    cdef int gives_up(self, int32_t row) except -1 nogil:
        cdef int32_t entry = self._kept_by.remove(key_of(row)) if self._kept_by.size > 0 else -1
        if entry >= 0:
            self._free_all(self._kept[entry].blocks, self._kept[entry].count)
            self._kept[entry].row = -1
        return 0

    cdef int _claim(self, int32_t slot, int32_t row, int32_t begin, int32_t end) except -1 nogil:
        """Append blocks begin .. end - 1 of the last lookup's hits to the table of a sequence."""
        cdef Table* table = &self._tables[slot]
        cdef int32_t owned = self._owned[slot], i, block
        self._prepare(table, owned + end - begin, end - begin)
        for i in range(begin, end):
            block = self._hits[i]
            if self._blocks[block].references == 0:
                self._unlink(block)
                self.free_blocks -= 1
            self._blocks[block].references += 1
            table.blocks[owned + i - begin] = block
        table.row = row
        table.num_hashed = self._owned[slot] = owned + end - begin
        return 0

    cdef int _take(self, Table* table, int32_t owned, int32_t count) except -1 nogil:
        cdef int32_t block = self._blocks[0].next, i
        for i in range(owned, owned + count):
            if self._blocks[block].hash != 0:
                if self._evicted is not None:
                    self._note_eviction(block)
                self._drop(self._blocks[block].hash)        # even if another block is cached under it
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
        self._free_all(self._tables[slot].blocks, self._owned[slot])
        self._owned[slot] = 0
        self._tables[slot].num_hashed = 0
        self._skipped[slot] = 0
        return self._move_out() if self._mirror is not None and self._mirror.moves else 0

    cdef void _free_all(self, const int32_t* blocks, int32_t count) noexcept nogil:
        """Release blocks, the last first."""
        cdef int32_t i
        for i in range(count - 1, -1, -1):
            self._blocks[blocks[i]].references -= 1
            if self._blocks[blocks[i]].references == 0:
                self._link_before(blocks[i], 0)
                self.free_blocks += 1

    def forget(self):
        """See KVCache."""
        cdef int32_t block
        for block in range(1, self._num_records):
            if self._blocks[block].hash != 0:
                self._drop(self._blocks[block].hash)
                self._blocks[block].hash = 0

    def follow(self):
        """Return a CacheLog of hashes that enter and leave the prefix cache from now on; it must still be empty."""
        if self.free_blocks < self.num_blocks or self._cached.size:
            raise ValueError("a cache can be followed only from its beginning")
        self._log = CacheLog()
        return self._log

    # ---- the debug face

    def kept_blocks(self):
        """Return the blocks that requests keep while they wait."""
        return [self._kept[i].blocks[k] for i in range(self._num_kept) if self._kept[i].row >= 0
                for k in range(self._kept[i].count)]

    @property
    def num_cached_hashes(self):
        """Number of texts that a lookup can find."""
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
