"""Which leading blocks of a prompt a router has sent to which replica, remembered up to a capacity per replica.

Source of the rule: the router-side LRU of prefix-affinity in BLIS (inference-sim, sim/prefix_cache_index.go) and of
llm-d's approximate prefix scorer. Matching a prompt against all replicas costs one look-up a block: an entry knows its
replicas as a set of bits.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from simulator.core.draws cimport mix
from simulator.core.errors cimport out_of_memory
from simulator.core.hash_map cimport HashMap
from simulator.core.index_list cimport NONE, IndexLinks, IndexList, Link, new_list
from simulator.domain.request cimport Request
from simulator.kv.content cimport Cursor

cdef extern from *:
    int count_trailing_zeros "__builtin_ctzll"(unsigned long long word) noexcept nogil
    int count_ones "__builtin_popcountll"(unsigned long long word) noexcept nogil

cdef enum:
    FIRST_ENTRIES = 1024

cdef uint64_t RUN = 0xA24BAED4963EE407      # sets apart the hashes of runs; odd, without a pattern, as Weyl steps are
cdef uint64_t SPREAD = 0x9FB21C651E98DF25


cdef inline uint64_t with_replica(uint64_t hash, int32_t replica) noexcept nogil:
    return mix(hash + <uint64_t>(replica + 1) * SPREAD)


cdef void move_back(Link* links, IndexList* listed, int32_t first, int32_t last) noexcept nogil:
    """Move the elements from `first` to `last` to the end of their list, in their order."""
    cdef int32_t before = links[first].prev, after = links[last].next
    if after == NONE:
        return
    links[after].prev = before
    if before == NONE:
        listed.head = after
    else:
        links[before].next = after
    links[first].prev = listed.tail
    links[listed.tail].next = first
    links[last].next = NONE
    listed.tail = last


cdef class PrefixIndex:
    """An LRU of at most `capacity` blocks for each of `num_replicas` replicas.

    Parameters
    ----------
    context : simulator.routing.base.RoutingContext: workload, content, block size and replicas.
    capacity : blocks per replica.
    """

    def __cinit__(self, context, int32_t capacity):
        cdef const Request[::1] requests = context.workload.requests
        cdef int32_t i
        self.capacity, self.block_size = capacity, context.block_size
        self._num_replicas = context.view.num_replicas
        self._num_words = (self._num_replicas + 63) // 64
        self._content, self._owner, self._row = context.content, context.workload, -1
        self._requests = &requests[0] if len(requests) else NULL
        self._prefix_of, self._held_of = HashMap(), HashMap()
        self._prefix_links, self._links = IndexLinks(), IndexLinks()
        self._free_prefixes = self._free_held = new_list()
        self._lru = <IndexList*>malloc(self._num_replicas * sizeof(IndexList))
        self._blocks = <int32_t*>calloc(self._num_replicas, sizeof(int32_t))
        self._alive = <uint64_t*>calloc(self._num_words, sizeof(uint64_t))
        if self._lru == NULL or self._blocks == NULL or self._alive == NULL:
            raise MemoryError()
        for i in range(self._num_replicas):
            self._lru[i] = new_list()

    def __dealloc__(self):
        free(self._prefixes)
        free(self._holders)
        free(self._held)
        free(self._lru)
        free(self._blocks)
        free(self._hashes)
        free(self._alive)

    cdef int32_t match(self, int32_t row, int32_t* matched) except -1 nogil:
        cdef int32_t entry = -1, i, k
        cdef uint64_t lost, all_left
        cdef uint64_t* holders
        memset(matched, 0, self._num_replicas * sizeof(int32_t))
        self._read(row)
        memset(self._alive, 0xFF, self._num_words * sizeof(uint64_t))
        for i in range(self._public + (self._private > 0)):
            entry = self._find(self._hashes[i], entry + 1)
            if entry < 0:
                break
            holders = &self._holders[<int64_t>entry * self._num_words]
            all_left = 0
            for k in range(self._num_words):
                lost = self._alive[k] & ~holders[k] if i > 0 else 0
                self._alive[k] &= holders[k]
                all_left |= self._alive[k]
                while lost:
                    matched[64 * k + count_trailing_zeros(lost)] = i
                    lost &= lost - 1
            if all_left == 0:
                return i
        else:
            i = self._public + (self._private > 0)
        if i > self._public:            # the private run was there too
            i = self._public + self._private
        if i > 0:
            for k in range(self._num_words):
                lost = self._alive[k]
                while lost:
                    matched[64 * k + count_trailing_zeros(lost)] = i
                    lost &= lost - 1
        return i

    cdef int touch(self, int32_t row, int32_t replica) except -1 nogil:
        cdef IndexList* lru = &self._lru[replica]
        cdef int32_t i = 0, entry = -1, first, last, after
        self._read(row)
        while i < self._public:
            first = self._held_of.get(with_replica(self._hashes[i], replica))
            if first < 0:
                entry = self._hold(self._add(self._hashes[i], 1, replica), replica, entry + 1)
                i += 1
                continue
            last = first
            i += 1
            while i < self._public:         # most often what came after it last time comes after it now
                after = self._links.next(last)
                if after == NONE or self._held[after].hash != self._hashes[i]:
                    break
                last = after
                i += 1
            move_back(self._links._links, lru, first, last)
            entry = self._held[last].prefix
        if self._private > 0:
            self._touch_run(replica)
        # What an LRU holds are the latest `capacity` different blocks: evicting now or on the way is the same.
        self._evict(replica, self._blocks[replica] - self.capacity)
        return 0

    cdef int forget(self, int32_t replica) except -1 nogil:
        self._evict(replica, self._blocks[replica])
        return 0

    cdef int _read(self, int32_t row) except -1 nogil:
        """Take the hashes of a prompt."""
        cdef int32_t total = self.num_blocks(row), known, i
        cdef const uint64_t* first
        cdef uint64_t* hashes
        cdef Cursor cursor
        if row == self._row:
            return 0
        self._row = -1
        self._public = min(total, self._content.public_tokens(row) // self.block_size)
        self._private = total - self._public
        if self._public + 1 > self._room:
            hashes = <uint64_t*>realloc(self._hashes, 2 * (self._public + 1) * sizeof(uint64_t))
            if hashes == NULL:
                return out_of_memory()
            self._hashes, self._room = hashes, 2 * (self._public + 1)
        cursor.hash, cursor.offset, cursor.piece = 0, 0, 0
        known = 0
        if self._public > 0:
            first = self._content.first_hashes(row, self.block_size, &known)
            known = min(known, self._public)
            if known > 0:
                memcpy(self._hashes, first, known * sizeof(uint64_t))
                cursor = self._content.behind(row, self.block_size, self._hashes, known)
        for i in range(known, self._public):
            self._hashes[i] = self._content.advance(row, self.block_size, &cursor)
        self._hashes[self._public] = mix(<uint64_t>(row + 1) * RUN) | 1
        self._row = row
        return 0

    cdef int32_t _find(self, uint64_t hash, int32_t guess) noexcept nogil:
        """Return the entry of a hash, -1 if there is none: most often it lies where the block before suggests."""
        if 0 < guess < self._prefix_links.universe and self._prefixes[guess].hash == hash:
            return guess
        return self._prefix_of.get(hash)

    cdef int _touch_run(self, int32_t replica) except -1 nogil:
        """Make the private blocks of the prompt the latest of a replica."""
        cdef int32_t held = self._held_of.get(with_replica(self._hashes[self._public], replica))
        if held < 0:
            held = self._add(self._hashes[self._public], self._private, replica)
        else:
            move_back(self._links._links, &self._lru[replica], held, held)
            self._blocks[replica] += self._private - self._held[held].num_blocks
            self._held[held].num_blocks = self._private
        if self._held[held].prefix < 0:
            self._hold(held, replica, -1)
        return 0

    cdef int32_t _add(self, uint64_t hash, int32_t num_blocks, int32_t replica) except -1 nogil:
        """Add a block, or a run of them, as the latest of a replica; return its entry of _held."""
        cdef int32_t held
        if self._free_held.size == 0:
            self._grow_held()
        self._held_of.put(with_replica(hash, replica), self._free_held.head)
        held = self._links.pop_front(&self._free_held)
        self._held[held].hash, self._held[held].prefix, self._held[held].num_blocks = hash, -1, num_blocks
        self._blocks[replica] += num_blocks
        self._links.push_back(&self._lru[replica], held)
        return held

    cdef int32_t _hold(self, int32_t held, int32_t replica, int32_t guess) except -1 nogil:
        """Let a replica hold what it was given whole; return the entry of _prefixes, which `guess` may be."""
        cdef uint64_t hash = self._held[held].hash
        cdef int32_t entry = self._find(hash, guess)
        if entry < 0:
            if self._free_prefixes.size == 0:
                self._grow_prefixes()
            self._prefix_of.put(hash, self._free_prefixes.head)
            entry = self._prefix_links.pop_front(&self._free_prefixes)
            self._prefixes[entry].hash, self._prefixes[entry].holders = hash, 0
            memset(&self._holders[<int64_t>entry * self._num_words], 0, self._num_words * sizeof(uint64_t))
        self._holders[<int64_t>entry * self._num_words + replica // 64] |= <uint64_t>1 << (replica % 64)
        self._prefixes[entry].holders += 1
        self._held[held].prefix = entry
        return entry

    cdef void _let_go(self, int32_t held, int32_t replica) noexcept nogil:
        cdef int32_t entry = self._held[held].prefix
        if entry < 0:
            return
        self._held[held].prefix = -1
        self._holders[<int64_t>entry * self._num_words + replica // 64] &= ~(<uint64_t>1 << (replica % 64))
        self._prefixes[entry].holders -= 1
        if self._prefixes[entry].holders == 0:
            self._prefix_of.remove(self._prefixes[entry].hash)
            self._prefixes[entry].hash = 0
            self._prefix_links.push_back(&self._free_prefixes, entry)

    cdef void _evict(self, int32_t replica, int32_t num_blocks) noexcept nogil:
        """Forget the oldest blocks of a replica; of a run, its first ones."""
        cdef IndexList* lru = &self._lru[replica]
        cdef int32_t held, taken
        while num_blocks > 0:
            held = lru.head
            self._let_go(held, replica)
            taken = min(num_blocks, self._held[held].num_blocks)
            num_blocks -= taken
            self._blocks[replica] -= taken
            self._held[held].num_blocks -= taken
            if self._held[held].num_blocks == 0:
                self._held_of.remove(with_replica(self._held[held].hash, replica))
                self._links.remove(lru, held)
                self._links.push_back(&self._free_held, held)

    cdef int _grow_prefixes(self) except -1 nogil:
        cdef int32_t before = self._prefix_links.universe, after = max(2 * before, FIRST_ENTRIES), i
        cdef Prefix* prefixes = <Prefix*>realloc(self._prefixes, after * sizeof(Prefix))
        if prefixes == NULL:
            return out_of_memory()
        self._prefixes = prefixes
        cdef uint64_t* holders = <uint64_t*>realloc(
            self._holders, <size_t>after * self._num_words * sizeof(uint64_t))
        if holders == NULL:
            return out_of_memory()
        self._holders = holders
        self._prefix_links.grow(after)
        for i in range(before, after):
            self._prefixes[i].hash = 0
            self._prefix_links.push_back(&self._free_prefixes, i)
        return 0

    cdef int _grow_held(self) except -1 nogil:
        cdef int32_t before = self._links.universe, after = max(2 * before, FIRST_ENTRIES), i
        cdef Held* held = <Held*>realloc(self._held, after * sizeof(Held))
        if held == NULL:
            return out_of_memory()
        self._held = held
        self._links.grow(after)
        for i in range(before, after):
            self._links.push_back(&self._free_held, i)
        return 0

    cpdef int check(self) except -1:
        """Raise RuntimeError if counts, sets and lists do not agree."""
        cdef int32_t replica, held, entry, k
        counts = {}
        for replica in range(self._num_replicas):
            self._links.check_list(&self._lru[replica])
            blocks, held = 0, self._lru[replica].head
            while held != NONE:
                blocks += self._held[held].num_blocks
                entry = self._held[held].prefix
                if self._held_of.get(with_replica(self._held[held].hash, replica)) != held:
                    raise RuntimeError("PrefixIndex: what a replica holds cannot be found")
                if entry >= 0:
                    counts[entry] = counts.get(entry, 0) + 1
                    if not self._holders[<int64_t>entry * self._num_words + replica // 64] >> (replica % 64) & 1:
                        raise RuntimeError("PrefixIndex: a holder is not in the set of its block")
                held = self._links.next(held)
            if blocks != self._blocks[replica] or blocks > self.capacity:
                raise RuntimeError("PrefixIndex: blocks of a replica are miscounted, or too many")
        for entry, holders in counts.items():
            ones = sum([count_ones(self._holders[<int64_t>entry * self._num_words + k])
                        for k in range(self._num_words)])
            if not holders == ones == self._prefixes[entry].holders:
                raise RuntimeError("PrefixIndex: holders of a block are miscounted")
        if self._prefix_of.size != len(counts):
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
        """Tell that a prompt was sent to a replica."""
        self.touch(row, replica)

    def note_closed(self, replica):
        """Tell that a replica holds nothing any more."""
        self.forget(replica)

    def num_held(self, replica):
        """Return the blocks that a replica holds."""
        return self._blocks[replica]
