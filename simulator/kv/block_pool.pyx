"""The blocks of a replica, their free queue, and the block tables of its sequences."""
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from simulator.core.memory cimport resize
from simulator.kv.prefix_cache cimport PRIVATE

cdef enum:
    FIRST_RECORDS = 8           # doubled until there is one record for each block
    MOST_ASKED = 16             # blank_blocks counts at most that many blocks of the queue, to bound its time


cdef class BlockPool(KVCache):
    """Base of the KV caches that know each of their blocks.

    num_blocks, block_size : as for KVCache.
    content : the texts of the requests.
    enable_prefix_caching : full blocks are cached.
    """

    def __cinit__(self, int32_t num_blocks, int32_t block_size, Content content, bint enable_prefix_caching=True,
                  *_, **__):
        self.tracks_identity = True
        self._content = content
        self._caching = enable_prefix_caching
        self.finds_outputs = enable_prefix_caching
        self._num_records = self._unused = 1
        self._blocks = <Block*>calloc(1, sizeof(Block))
        if self._blocks == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int32_t slot
        for slot in range(self.num_slots if self._tables != NULL else 0):
            free(self._tables[slot].blocks)
        free(self._tables)
        free(self._blocks)
        free(self._hits)

    def share_content(self, Content content):
        """See KVCache."""
        self._content = content

    cdef int reserve_slots(self, int32_t num_slots) except -1 nogil:
        cdef int32_t before = self.num_slots
        if num_slots <= before:
            return 0
        resize(&self._tables, num_slots * sizeof(Table))
        memset(self._tables + before, 0, (num_slots - before) * sizeof(Table))
        return KVCache.reserve_slots(self, num_slots)

    cdef int32_t blank_blocks(self) noexcept nogil:
        cdef int32_t block = self._blocks[0].next, count = 0
        while count < MOST_ASKED and block != 0 and (
                self._blocks[block].hash == 0 or self._blocks[block].chain == PRIVATE):
            if block == self._num_records - 1:      # represents all blocks behind it, never used
                return count + 1
            count += 1
            block = self._blocks[block].next
        return count

    cdef int32_t free_hits(self) noexcept nogil:
        return self._free_hits

    cdef int _relocate(self, int32_t num_records) except -1 nogil:
        return 0

    cdef int _grow_records(self, int32_t count) except -1 nogil:
        cdef int64_t needed = max(max(2 * <int64_t>self._num_records, <int64_t>self._unused + count + 1),
                                  <int64_t>FIRST_RECORDS)
        cdef int32_t before = self._num_records, after = <int32_t>min(needed, <int64_t>self.num_blocks + 1)
        cdef int32_t last = before - 1, following, block    # the old last record; its successor in the queue
        cdef Block* blocks
        resize(&self._blocks, after * sizeof(Block))
        blocks = self._blocks
        memset(blocks + before, 0, (after - before) * sizeof(Block))
        self._relocate(after)
        following = blocks[last].next
        for block in range(before, after):
            blocks[block].prev = block - 1
            blocks[block].next = block + 1
        blocks[last].next = before
        blocks[after - 1].next = following
        blocks[following].prev = after - 1
        self._num_records = after
        return 0

    cdef int _grow_table(self, Table* table, int32_t room) except -1 nogil:
        resize(&table.blocks, 2 * <size_t>room * sizeof(int32_t))
        table.room = 2 * room
        return 0

    cdef int _grow_hits(self, int32_t room) except -1 nogil:
        resize(&self._hits, 2 * <size_t>room * sizeof(int32_t))
        self._room_hits = 2 * room
        return 0

    cdef int _note_eviction(self, int32_t block) except -1 nogil:
        with gil:
            self._evicted.append(block)
        return 0

    # ---- the debug face

    def log_evictions(self):
        """Keep the indices of cached blocks that are reused from now on."""
        self._evicted = []

    def take_evictions(self):
        """Return the reused blocks since the last call, in order."""
        evicted, self._evicted = self._evicted, []
        return evicted

    def free_queue(self):
        """Return the free blocks in the order in which they will be reused."""
        cdef int32_t block = self._blocks[0].next
        queue = [*range(1, self.num_blocks + 1)] if self._num_records == 1 else []
        while block != 0:
            queue.append(block)
            if block == self._num_records - 1:
                queue += range(block + 1, self.num_blocks + 1)
            block = self._blocks[block].next
        return queue

    def block_table(self, int32_t slot):
        """Return the blocks of a slot."""
        cdef int32_t i
        return [self._tables[slot].blocks[i] for i in range(self._owned[slot])]

    def kept_blocks(self):
        """Return the blocks that are held though no slot owns them."""
        return []

    @property
    def num_records(self):
        """Number of blocks with a record, the null block included; the others were never needed."""
        return self._num_records

    def check(self, _owned_total=None):
        """Raise RuntimeError unless queue, references and tables agree."""
        cdef int32_t block, slot, i
        references = [0] * (self.num_blocks + 1)
        for slot in range(self.num_slots):
            for i in range(self._owned[slot]):
                references[self._tables[slot].blocks[i]] += 1
        for block in self.kept_blocks():
            references[block] += 1
        queue = self.free_queue()
        if len(queue) != self.free_blocks or len(set(queue)) != len(queue):
            raise RuntimeError(f"free queue of {len(queue)} blocks, {self.free_blocks} counted")
        in_queue = set(queue)
        for block in range(1, self.num_blocks + 1):
            counted = self._blocks[block].references if block < self._num_records else 0
            if counted != references[block]:
                raise RuntimeError(f"block {block}: {references[block]} owners, {counted} counted")
            if (references[block] == 0) != (block in in_queue):
                raise RuntimeError(
                    f"block {block} with {references[block]} owners, in the free queue: {block in in_queue}")
