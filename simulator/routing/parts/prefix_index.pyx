"""Leading blocks of prompts that a router has sent to each replica, remembered up to a capacity per replica.

Source of the rule: the router-side LRU of prefix-affinity in BLIS (inference-sim, sim/prefix_cache_index.go) and of
llm-d's approximate prefix scorer.
"""
from libc.stdlib cimport calloc, free, malloc

from simulator.core.draws cimport mix
from simulator.core.index_list cimport NONE, new_list
from simulator.core.memory cimport resize
from simulator.kv.content cimport Cursor
from simulator.kv.prompt_hashes cimport read_hashes

cdef enum:
    FIRST_ENTRIES = 1024

cdef uint64_t RUN = 0xA24BAED4963EE407      # sets apart the hashes of runs; odd, without a pattern, as Weyl steps are
cdef uint64_t SPREAD = 0x9FB21C651E98DF25


cdef inline uint64_t with_replica(uint64_t hash, int32_t replica) noexcept nogil:
    return mix(hash + <uint64_t>(replica + 1) * SPREAD)


cdef class PrefixIndex:
    """An LRU of at most `capacity` blocks for each of `num_replicas` replicas.

    Parameters
    ----------
    context : simulator.routing.base.RoutingContext: workload, content, block size and replicas.
    capacity : blocks per replica.
    counts_rest : the tokens behind the last whole block of a prompt are a block, too, which matches as a whole.
    block_tokens : tokens per block; 0: the block size of the context.
    ttl_ns : time for which a block is held after it was sent last; 0: any time.
    """

    def __cinit__(self, context, int32_t capacity, bint counts_rest=False, int32_t block_tokens=0, int64_t ttl_ns=0):
        cdef const Request[::1] requests = context.workload.requests
        cdef int32_t i
        self.capacity, self.block_size, self.ttl_ns = capacity, block_tokens or context.block_size, ttl_ns
        self._counts_rest = counts_rest
        self._num_replicas = context.view.num_replicas
        self._content, self._owner, self._row = context.content, context.workload, -1
        self._requests = &requests[0] if len(requests) else NULL
        self._holders, self._held_of, self._links = HolderSets(self._num_replicas), HashMap(), IndexLinks()
        self._free_held = new_list()
        self._lru = <IndexList*>malloc(self._num_replicas * sizeof(IndexList))
        self._blocks = <int32_t*>calloc(self._num_replicas, sizeof(int32_t))
        if self._lru == NULL or self._blocks == NULL:
            raise MemoryError()
        for i in range(self._num_replicas):
            self._lru[i] = new_list()

    def __dealloc__(self):
        free(self._held)
        free(self._lru)
        free(self._blocks)
        free(self._hashes)
        free(self._touches)

    cdef int32_t match(self, int32_t row, int32_t* matched) except -1 nogil:
        cdef int32_t best = 0, i
        self._read(row)
        self._holders.match(self._hashes, self._public + (self._private > 0), matched)
        for i in range(self._num_replicas):
            if matched[i] > self._public:           # the run of private blocks was there too
                matched[i] = self._public + self._private
            best = max(best, matched[i])
        return best

    cdef int32_t match_some(self, int32_t row, int32_t* matched, int32_t* found) except -1 nogil:
        cdef int32_t num_hashes, count, i
        self._read(row)
        num_hashes = self._public + (self._private > 0)
        self._holders.match(self._hashes, num_hashes, matched)
        count = self._holders.list_holders(self._hashes[0], found) if num_hashes > 0 else 0
        for i in range(count):
            if matched[found[i]] > self._public:
                matched[found[i]] = self._public + self._private
        return count

    cdef int touch(self, int32_t row, int32_t replica) except -1 nogil:
        cdef IndexList* lru = &self._lru[replica]
        cdef int32_t i = 0, first, last, after
        self._read(row)
        while i < self._public:
            first = self._held_of.get(with_replica(self._hashes[i], replica))
            if first < 0:
                self._add(self._hashes[i], 1, replica)
                i += 1
                continue
            last = first
            self._held[first].touched_ns = self._now_ns
            i += 1
            while i < self._public:         # most often the successor of last time follows again
                after = self._links.next(last)
                if after == NONE or self._held[after].hash != self._hashes[i]:
                    break
                last = after
                self._held[after].touched_ns = self._now_ns
                i += 1
            self._links.move_back(lru, first, last)
        if self._private > 0:
            self._touch_run(replica)
        if self.ttl_ns > 0:
            self._note_touch(replica)
        # An LRU holds the latest `capacity` different blocks: evicting now or on the way gives one result.
        return self._evict(replica, self._blocks[replica] - self.capacity)

    cdef int forget(self, int32_t replica) except -1 nogil:
        return self._evict(replica, self._blocks[replica])

    cdef int expire(self, int64_t now_ns) except -1 nogil:
        cdef const Touch* touch
        cdef const IndexList* lru
        self._now_ns = now_ns
        while self._first_touch < self._end_touch:
            touch = &self._touches[self._first_touch & (self._touch_room - 1)]
            if touch.time_ns > now_ns - self.ttl_ns:
                return 0
            lru = &self._lru[touch.replica]
            while lru.size > 0 and self._held[lru.head].touched_ns <= now_ns - self.ttl_ns:
                self._evict(touch.replica, self._held[lru.head].num_blocks)
            self._first_touch += 1
        return 0

    cdef int _note_touch(self, int32_t replica) except -1 nogil:
        cdef int64_t room = self._touch_room, i
        if self._end_touch - self._first_touch == room:
            resize(&self._touches, 2 * max(room, FIRST_ENTRIES) * sizeof(Touch))
            self._touch_room = 2 * max(room, FIRST_ENTRIES)
            for i in range(self._first_touch, self._end_touch):         # the last `room` touches, in their new places
                if i & (self._touch_room - 1) >= room:
                    self._touches[i & (self._touch_room - 1)] = self._touches[i & (room - 1)]
        self._touches[self._end_touch & (self._touch_room - 1)].time_ns = self._now_ns
        self._touches[self._end_touch & (self._touch_room - 1)].replica = replica
        self._end_touch += 1
        return 0

    cdef int _read(self, int32_t row) except -1 nogil:
        """Take the hashes of a prompt."""
        cdef int32_t total = self.num_blocks(row), whole
        if row == self._row:
            return 0
        self._row = -1
        self._public = min(total, self._content.public_tokens(row) // self.block_size)
        if self._content.public_tokens(row) >= self._requests[row].prompt_tokens:
            self._public = total
        self._private = total - self._public
        if self._public + 1 > self._room:
            resize(&self._hashes, 2 * (self._public + 1) * sizeof(uint64_t))
            self._room = 2 * (self._public + 1)
        whole = min(self._public, self._requests[row].prompt_tokens // self.block_size)
        read_hashes(self._content, row, self.block_size, whole, self._hashes)
        if whole < self._public:
            self._hashes[whole] = self._rest_hash(row, whole)
        self._hashes[self._public] = mix(<uint64_t>(row + 1) * RUN) | 1
        self._row = row
        return 0

    cdef uint64_t _rest_hash(self, int32_t row, int32_t whole) noexcept nogil:
        """Return the hash of the tokens behind the whole blocks of a prompt."""
        cdef Cursor cursor
        cursor.hash, cursor.offset, cursor.piece = 0, 0, 0
        if whole > 0:
            self._content.advance(row, whole * self.block_size, &cursor)
            cursor.hash = self._hashes[whole - 1]
        return self._content.advance(row, self._requests[row].prompt_tokens - whole * self.block_size, &cursor)

    cdef int _touch_run(self, int32_t replica) except -1 nogil:
        """Make the private blocks of the prompt the latest of a replica."""
        cdef uint64_t hash = self._hashes[self._public]
        cdef int32_t held = self._held_of.get(with_replica(hash, replica))
        if held < 0:
            self._add(hash, self._private, replica)
            return 0
        self._links.move_back(&self._lru[replica], held, held)
        self._blocks[replica] += self._private - self._held[held].num_blocks
        self._held[held].num_blocks, self._held[held].is_whole = self._private, True
        self._held[held].touched_ns = self._now_ns
        return self._holders.add(hash, replica)

    cdef int32_t _add(self, uint64_t hash, int32_t num_blocks, int32_t replica) except -1 nogil:
        """Add a block, or a run of blocks, as the latest of a replica; return its entry of _held."""
        cdef int32_t held
        if self._free_held.size == 0:
            self._grow()
        self._held_of.put(with_replica(hash, replica), self._free_held.head)
        self._holders.add(hash, replica)
        held = self._links.pop_front(&self._free_held)
        self._held[held].hash, self._held[held].num_blocks, self._held[held].is_whole = hash, num_blocks, True
        self._held[held].touched_ns = self._now_ns
        self._links.push_back(&self._lru[replica], held)
        self._blocks[replica] += num_blocks
        return held

    cdef int _evict(self, int32_t replica, int32_t num_blocks) except -1 nogil:
        """Forget the oldest blocks of a replica; of a run, its first ones."""
        cdef int32_t taken, entry
        cdef Held* held
        while num_blocks > 0:
            entry = self._lru[replica].head
            held = &self._held[entry]
            if held.is_whole:
                self._holders.remove(held.hash, replica)
                held.is_whole = False
            taken = min(num_blocks, held.num_blocks)
            num_blocks -= taken
            held.num_blocks -= taken
            self._blocks[replica] -= taken
            if held.num_blocks == 0:
                self._held_of.remove(with_replica(held.hash, replica))
                self._links.remove(&self._lru[replica], entry)
                self._links.push_back(&self._free_held, entry)
        return 0

    cdef int _grow(self) except -1 nogil:
        cdef int32_t before = self._links.universe, after = max(2 * before, FIRST_ENTRIES), i
        resize(&self._held, after * sizeof(Held))
        self._links.grow(after)
        for i in range(before, after):
            self._links.push_back(&self._free_held, i)
        return 0

    cpdef int check(self) except -1:
        """Raise RuntimeError if counts, sets and lists do not agree."""
        cdef int32_t replica, held
        self._holders.check()
        whole = set()
        for replica in range(self._num_replicas):
            self._links.check_list(&self._lru[replica])
            blocks, held = 0, self._lru[replica].head
            while held != NONE:
                blocks += self._held[held].num_blocks
                if self._held_of.get(with_replica(self._held[held].hash, replica)) != held:
                    raise RuntimeError("PrefixIndex: what a replica holds cannot be found")
                if bool(self._held[held].is_whole) != self._holders.matches([self._held[held].hash])[replica]:
                    raise RuntimeError("PrefixIndex: what a replica holds whole is not what it can be hit by")
                if self._held[held].is_whole:
                    whole.add(self._held[held].hash)
                held = self._links.next(held)
            if blocks != self._blocks[replica] or blocks > self.capacity:
                raise RuntimeError("PrefixIndex: blocks of a replica are miscounted, or too many")
        if self._holders.size() != len(whole):
            raise RuntimeError("PrefixIndex: a block that nobody holds is left over")
        return 0

    # The face for tests and exploration.

    def matched_blocks(self, row):
        """Return the leading blocks of a prompt that each replica holds, as a list."""
        cdef int32_t* matched = <int32_t*>malloc(self._num_replicas * sizeof(int32_t))
        if matched == NULL:
            raise MemoryError()
        try:
            best = self.match(row, matched)
            found = [matched[i] for i in range(self._num_replicas)]
        finally:
            free(matched)
        assert best == max(found), (best, found)
        return found

    def note_sent(self, row, replica):
        """Note that a prompt was sent to a replica."""
        self.touch(row, replica)

    def note_time(self, now_ns):
        """Note the time, and forget the blocks that have passed theirs."""
        self.expire(now_ns)

    def note_closed(self, replica):
        """Note that a replica holds nothing any more."""
        self.forget(replica)

    def num_held(self, replica):
        """Return the blocks that a replica holds."""
        return self._blocks[replica]
