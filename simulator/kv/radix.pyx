"""The KV cache of SGLang: free pages, and a radix tree of text that may be found again.

Source: sglang 0.5.23, mem_cache/unified_radix_cache.py (checkpoint_into_tree, evict_for_alloc), mem_cache/common.py
(release_kv_cache) and mem_cache/allocation.py.
"""
from libc.stdlib cimport free
from libc.string cimport memset

from simulator.core.memory cimport resize
from simulator.kv.base cimport blocks_for
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.radix_host cimport HostTree
from simulator.kv.radix_tree cimport BY_PRIORITY, FIFO, FILO, LFU, LRU, MRU, SLRU

cdef enum:
    FEWEST_LOADED = 10          # tokens: fewer are computed anew; load_back_threshold of init_hicache

EVICTIONS = {"lru": LRU, "lfu": LFU, "fifo": FIFO, "mru": MRU, "filo": FILO, "priority": BY_PRIORITY, "slru": SLRU}


cdef class RadixKV(KVCache):
    """Pages and a tree; see radix.pxd.

    num_blocks, block_size : pages, and tokens in each.
    content : Content, the texts of the requests.
    caches : computed text may be found again.
    policy : eviction order of the tree, a key of `EVICTIONS`.
    host : HostSettings of copies in host memory; None: there are none.
    hashes_ahead : tokens behind a token with which it is found; 0 with copies in host memory.
    """

    def __init__(self, int32_t num_blocks, int32_t block_size, content, bint caches, policy, host=None,
                 int32_t hashes_ahead=0):
        self.hashes_ahead = hashes_ahead
        if host is None:
            self.tree = RadixTree(block_size, content, EVICTIONS[policy], hashes_ahead)
        else:
            self.tree = HostTree(block_size, content, EVICTIONS[policy], host)
        self.caches = caches
        self._blank = num_blocks

    def __dealloc__(self):
        free(self._holds)

    def forget(self):
        """See KVCache; batches that are under way keep their pages."""
        self._blank += <int32_t>(self.tree.forget_host() // self.block_size)
        self.make_room(<int64_t>(self.num_blocks + 1) * self.block_size)        # more than there are: all go
        self.count()

    def follow(self):
        """See KVCache."""
        if not self.caches:
            return None
        self.tree.log = CacheLog()
        return self.tree.log

    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil:
        cdef int32_t before = self.num_slots
        KVCache.reserve_slots(self, num_slots)
        if num_slots > before:
            resize(&self._holds, num_slots * sizeof(Hold))
            memset(self._holds + before, 0, (num_slots - before) * sizeof(Hold))
        return 0

    cdef void count(self) noexcept nogil:
        self.free_blocks = self._blank + <int32_t>(self.tree.evictable // self.block_size)

    cdef int make_room(self, int64_t tokens) except -1 nogil:
        cdef int32_t gained = 1
        while self.blank_tokens() < tokens and gained > 0:
            gained = self.tree.evict()
            self._blank += gained // self.block_size
        return 0

    cdef int32_t find(self, int32_t row, int64_t num_tokens, int32_t* node) except -1 nogil:
        node[0] = 0
        return self.tree.match(row, num_tokens, node) if self.caches else 0

    cdef void keep(self, int32_t slot, int32_t node, int64_t found) noexcept nogil:
        cdef Hold* hold = &self._holds[slot]
        self.tree.lock(node, 0, 1)
        hold.node, hold.tokens, hold.shared, hold.counted = node, found, found, 0
        self.count()

    cdef bint load_back(self, int32_t slot, int32_t node, int64_t tokens, int32_t row) except -1 nogil:
        cdef Hold* hold = &self._holds[slot]
        cdef bint has_room = tokens >= FEWEST_LOADED
        cdef int64_t lock = self.tree.begin_load(node)
        if has_room:
            self.make_room(tokens)
            has_room = self.blank_tokens() >= tokens
        self.tree.end_load(node, lock, has_room, row)
        if has_room:
            self._blank -= <int32_t>(tokens // self.block_size)
            self.tree.move_lock(hold.node, node)
            hold.node = node
            hold.tokens += tokens
            hold.shared = hold.tokens
        self.count()
        return has_room

    cdef void take(self, int32_t slot, int64_t tokens) noexcept nogil:
        cdef Hold* hold = &self._holds[slot]
        self._blank -= blocks_for(tokens, self.block_size) - blocks_for(hold.tokens, self.block_size)
        hold.tokens = tokens
        self.count()

    cdef int publish(self, int32_t slot, int32_t row, int64_t num_tokens, int64_t prompt_tokens,
                     int64_t priority) except -1 nogil:
        cdef Hold* hold = &self._holds[slot]
        cdef int64_t whole = max(num_tokens - self.hashes_ahead, <int64_t>0), there = 0
        cdef int32_t node = 0, end
        if not self.caches or num_tokens == 0:
            return 0
        whole -= whole % self.block_size
        self.tree.revived = 0
        if whole > 0:
            there = self.tree.insert(row, whole, priority, hold.counted, hold.node, &node)
        hold.counted = max(hold.counted, whole)
        if there > hold.shared:                     # computed twice: its own pages are free
            self._blank += <int32_t>((there - hold.shared - self.tree.revived) // self.block_size)
        prompt_tokens -= self.hashes_ahead
        prompt_tokens -= prompt_tokens % self.block_size
        if 0 < prompt_tokens < whole:
            self.tree.insert(row, prompt_tokens, priority + 1, prompt_tokens, node, &end)
        self.tree.move_lock(hold.node, node)
        hold.node, hold.shared = node, whole
        self.count()
        return 0

    # ---- the interface of all KV caches

    cdef int32_t lookup(self, int32_t row, int32_t num_tokens) except -1 nogil:
        return self.find(row, num_tokens - 1, &self._found) // self.block_size

    cdef int32_t most_hits(self, int32_t row, int32_t num_tokens) noexcept nogil:
        return blocks_for(num_tokens, self.block_size) if self.caches else 0

    cdef int allocate(self, int32_t slot, int32_t row, int32_t hits, int64_t slots, int64_t full_tokens,
                      int32_t watermark, int64_t known_tokens) except -1 nogil:
        cdef int64_t need = blocks_for(max(slots, full_tokens), self.block_size) - blocks_for(
            self._holds[slot].tokens, self.block_size)
        if hits > 0:
            self.keep(slot, self._found, <int64_t>hits * self.block_size)
            need -= hits
        if need + watermark > self.free_blocks:
            if hits > 0:
                self.release(slot, False)
            return 0
        self.make_room(need * self.block_size)
        self.take(slot, max(slots, self._holds[slot].tokens))
        return 1

    cdef int release(self, int32_t slot, bint returns) except -1 nogil:
        cdef Hold* hold = &self._holds[slot]
        self._blank += blocks_for(hold.tokens, self.block_size) - <int32_t>(hold.shared // self.block_size)
        self.tree.lock(hold.node, 0, -1)
        memset(hold, 0, sizeof(Hold))
        self.count()
        return 0

    # ---- members: each takes a page when it is due; the pages are only counted

    cdef int join(self, int32_t slot, int32_t phase, int64_t order) except -1 nogil:
        self._num_members += 1
        return KVCache.join(self, slot, phase, order)

    cdef void leave(self, int32_t slot, int32_t phase) noexcept nogil:
        self._num_members -= 1
        KVCache.leave(self, slot, phase)

    cdef void settle(self, int32_t slot, int64_t num_computed) noexcept nogil:
        self._holds[slot].tokens = num_computed

    cdef int32_t owned_blocks(self, int32_t slot, bint is_member, int64_t num_computed) noexcept nogil:
        cdef int64_t tokens = num_computed if is_member else self._holds[slot].tokens
        return blocks_for(tokens, self.block_size) - <int32_t>(self._holds[slot].shared // self.block_size)

    cdef void step_begin(self, int32_t phase) noexcept nogil:
        self._blank -= self._due[phase]                 # checked by the caller, see make_room
        self.count()

    cdef int step_run(self, int32_t phase, int32_t count) except -1 nogil:
        cdef int32_t _
        for _ in range(count):
            if self._blank < self._num_members:
                self.make_room(<int64_t>self._num_members * self.block_size)
            self._blank -= self._due[phase]
            phase = phase + 1 if phase + 1 < self.num_phases else 0
        self.count()
        return 0

    # ---- the debug face

    def check(self, owned_total):
        """Raise RuntimeError unless pages are conserved.

        owned_total : pages that all sequences own outside of the tree, as counted by the caller.
        """
        self.tree.check()
        in_tree = (self.tree.evictable + self.tree.protected) // self.block_size
        if self._blank < 0 or self._blank + in_tree + owned_total != self.num_blocks:
            raise RuntimeError(f"{self._blank} free + {in_tree} in the tree + {owned_total} owned != "
                               f"{self.num_blocks} pages")

    def log_evictions(self):
        """See PagedKV; pages of the tree have no index."""

    @property
    def tokens_free(self):
        """Tokens of pages that hold nothing; of evictable pages of the tree; of locked pages of the tree."""
        return self.blank_tokens(), self.tree.evictable, self.tree.protected
