"""The pool that several groups of layers share: its blocks, the queue of free ones, and their content.

Source: the behaviour of vLLM 0.32.0, vllm/v1/core/block_pool.py.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.errors cimport out_of_memory
from simulator.core.memory cimport resize

cdef enum:
    MOST_ASKED = 16             # `blank` counts at most that many blocks of the queue, to bound its time


cdef class BlockStore:
    """Base of both stores; see block_store.pxd for the contract."""

    cdef int take(self, int32_t* table, int32_t count, int32_t num_left) except -1 nogil:
        return 0

    cdef int32_t hold(self, int32_t block) noexcept nogil:
        return 0

    cdef void take_nameless(self, int32_t num_left) noexcept nogil:
        pass

    cdef int release_nobodys(self, int32_t count) except -1 nogil:
        return 0

    cdef int32_t release_passed(self, int64_t name, int32_t count, int32_t before) except -1 nogil:
        return 0

    cdef int32_t num_passed(self, int32_t element, int64_t name) noexcept nogil:
        return 0

    cdef int32_t before_passed(self, int32_t element) noexcept nogil:
        return 0

    cdef int list_passed(self, int32_t element, uint64_t hash) except -1 nogil:
        return 0

    cdef int32_t list_as(self, int32_t block, uint64_t hash) except -1 nogil:
        return block

    cdef int also_list_as(self, int32_t block, uint64_t hash) except -1 nogil:
        return 0

    cdef int move_hashes(self, int32_t block, int32_t other) except -1 nogil:
        return 0

    cdef int32_t release(self, int32_t* table, int32_t begin, int32_t end) except -1 nogil:
        return 0

    cdef int32_t blank(self, int32_t num_free) noexcept nogil:
        return num_free


@cython.final
cdef class NamedStore(BlockStore):
    """Blocks 1 .. num_blocks, in a queue while they are free; 0 is the null block."""

    def __cinit__(self, int32_t num_blocks):
        cdef int32_t block
        self.names_all = True
        self.prefixes = PrefixCache()
        self._num_blocks, self._num_records = num_blocks, num_blocks + 1
        self._blocks = <Block*>calloc(num_blocks + 1, sizeof(Block))
        if self._blocks == NULL:
            raise MemoryError()
        for block in range(num_blocks + 1):
            self._blocks[block].prev = block - 1 if block > 0 else num_blocks
            self._blocks[block].next = block + 1 if block < num_blocks else 0
        self.prefixes.relocate(self._blocks, num_blocks + 1)

    def __dealloc__(self):
        free(self._blocks)
        free(self._further)

    cdef int take(self, int32_t* table, int32_t count, int32_t num_left) except -1 nogil:
        cdef Block* blocks = self._blocks
        cdef int32_t block = blocks[0].next, i
        for i in range(count):
            if blocks[block].hash != 0:
                self.evictions += 1
                if self._evicted is not None:
                    self._note_eviction(block)
                self.unlist(block)
            blocks[block].references = 1
            table[i] = block
            block = blocks[block].next
        blocks[0].next = block
        blocks[block].prev = 0
        return 0

    cdef int32_t hold(self, int32_t block) noexcept nogil:
        cdef Block* it = &self._blocks[block]
        if it.references == 0:
            self._blocks[it.prev].next = it.next
            self._blocks[it.next].prev = it.prev
        it.references += 1
        return it.references

    cdef int32_t list_as(self, int32_t block, uint64_t hash) except -1 nogil:
        if self._blocks[block].hash != 0:
            self.unlist(block)
        self.prefixes.insert(block, hash)
        return block

    cdef int also_list_as(self, int32_t block, uint64_t hash) except -1 nogil:
        cdef int32_t entry
        if self._blocks[block].hash == hash:
            return 0
        if self._blocks[block].hash == 0:
            self.prefixes.insert(block, hash)
            return 0
        if self._spare == 0:
            self._add_spares()
        entry = self._further[block]
        while entry != 0:
            if self._blocks[entry].hash == hash:
                return 0
            entry = self._blocks[entry].next
        entry = self._spare
        self._spare = self._blocks[entry].next
        self._blocks[entry].references, self._blocks[entry].next = block, self._further[block]
        self._further[block] = entry
        self.prefixes.insert(entry, hash)
        return 0

    cdef int move_hashes(self, int32_t block, int32_t other) except -1 nogil:
        cdef uint64_t hash = self._blocks[block].hash
        cdef int32_t entry
        if hash == 0:
            return 0
        self.prefixes.remove(block)
        self.prefixes.insert(other, hash)
        entry = self._further[block] if self._further != NULL else 0
        while entry != 0:
            self.also_list_as(other, self._blocks[entry].hash)
            entry = self._blocks[entry].next
        self._drop_further(block)
        return 0

    cdef void unlist(self, int32_t block) noexcept nogil:
        """Let nothing be found in a block, which has a hash, any more."""
        self.prefixes.remove(block)
        self._drop_further(block)

    cdef void _drop_further(self, int32_t block) noexcept nogil:
        cdef int32_t entry = self._further[block] if self._further != NULL else 0, following
        while entry != 0:
            following = self._blocks[entry].next
            self.prefixes.remove(entry)
            self._blocks[entry].next = self._spare
            self._spare = entry
            entry = following
        if self._further != NULL:
            self._further[block] = 0

    cdef int _add_spares(self) except -1 nogil:
        cdef int32_t before = self._num_records, after = before + before // 2 + 16, entry
        if self._further == NULL:
            self._further = <int32_t*>calloc(self._num_blocks + 1, sizeof(int32_t))
            if self._further == NULL:
                return out_of_memory()
        resize(&self._blocks, after * sizeof(Block))
        memset(self._blocks + before, 0, (after - before) * sizeof(Block))
        for entry in range(before, after - 1):
            self._blocks[entry].next = entry + 1
        self._spare, self._num_records = before, after
        return self.prefixes.relocate(self._blocks, after)

    cdef int32_t release(self, int32_t* table, int32_t begin, int32_t end) except -1 nogil:
        cdef Block* blocks = self._blocks
        cdef int32_t front = self._front if self.goes_on else blocks[0].next, count = 0, i, block
        self.num_left_alone = 0
        for i in range(end - 1, begin - 1, -1):
            block = table[i]
            table[i] = NO_BLOCK
            if block == NO_BLOCK:
                continue
            blocks[block].references -= 1
            if blocks[block].references > 0:
                self.num_left_alone += blocks[block].references == 1
                continue
            count += 1
            self._link_before(block, 0 if blocks[block].hash != 0 else front)
            if front == 0 and blocks[block].hash != 0:
                front = block
        self._front = front
        return count

    cdef void _link_before(self, int32_t block, int32_t following) noexcept nogil:
        cdef Block* it = &self._blocks[block]
        it.next = following
        it.prev = self._blocks[following].prev
        self._blocks[it.prev].next = block
        self._blocks[following].prev = block

    cdef int32_t blank(self, int32_t num_free) noexcept nogil:
        cdef int32_t block = self._blocks[0].next, count = 0
        while count < MOST_ASKED and block != 0 and self._blocks[block].hash == 0:
            count += 1
            block = self._blocks[block].next
        return count

    # ---- the debug face

    cdef int _note_eviction(self, int32_t block) except -1 nogil:
        with gil:
            self._evicted.append(block)
        return 0

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
        queue = []
        while block != 0:
            queue.append(block)
            block = self._blocks[block].next
        return queue

    @property
    def num_cached_hashes(self):
        """Distinct texts that cached blocks hold, each counted once in each group."""
        cdef int32_t block
        return sum(self._blocks[block].hash != 0 and self._blocks[block].chain >= 0
                   for block in range(1, self._num_records))

    def clear(self):
        """Forget all cached text; no block is held."""
        cdef int32_t block
        for block in range(1, self._num_blocks + 1):
            if self._blocks[block].hash != 0:
                self.unlist(block)

    def check(self, held, num_free):
        """Raise RuntimeError unless queue, references and prefix cache agree with the block tables.

        held : entries of all block tables. num_free : free blocks, as counted by the owner.
        """
        cdef int32_t block
        references = [0] * (self._num_blocks + 1)
        for name in held:
            references[name] += 1
        queue = self.free_queue()
        if len(queue) != num_free or len(set(queue)) != len(queue):
            raise RuntimeError(f"free queue of {len(queue)} blocks, {num_free} counted")
        in_queue = set(queue)
        for block in range(1, self._num_blocks + 1):
            if self._blocks[block].references != references[block] or (references[block] == 0) != (block in in_queue):
                raise RuntimeError(f"block {block}: {references[block]} owners, {self._blocks[block].references} "
                                   f"counted, in the free queue: {block in in_queue}")
            if self._blocks[block].hash != 0 and self.prefixes.find(self._blocks[block].hash) == 0:
                raise RuntimeError(f"block {block} has a hash the prefix cache does not know")
        for block in range(self._num_blocks + 1, self._num_records):
            if self._blocks[block].hash != 0 and self._blocks[self._blocks[block].references].hash == 0:
                raise RuntimeError(f"block {self._blocks[block].references} has further hashes, and no first one")


@cython.final
cdef class CountedStore(BlockStore):
    """Names for blocks of text that a lookup can find; all others are counted."""

    def __cinit__(self):
        self._cached = Stretches()
        self.prefixes = self._cached.prefixes

    cdef int take(self, int32_t* table, int32_t count, int32_t num_left) except -1 nogil:
        cdef int32_t i
        for i in range(count):
            table[i] = NAMELESS
        self.take_nameless(num_left)
        return 0

    cdef void take_nameless(self, int32_t num_left) noexcept nogil:
        if num_left < self._cached.size:
            self._cached.evict(self._cached.size - num_left)

    cdef int release_nobodys(self, int32_t count) except -1 nogil:
        return self._cached.append_nobodys(count)

    cdef int32_t release_passed(self, int64_t name, int32_t count, int32_t before) except -1 nogil:
        return self._cached.append_passed(name, count, before)

    cdef int32_t num_passed(self, int32_t element, int64_t name) noexcept nogil:
        return self._cached.num_passed(element, name)

    cdef int32_t before_passed(self, int32_t element) noexcept nogil:
        return self._cached.stretches[element].sibling

    cdef int list_passed(self, int32_t element, uint64_t hash) except -1 nogil:
        return self._cached.list_passed(element, hash)

    cdef int32_t hold(self, int32_t block) noexcept nogil:
        cdef Block* it = &self._cached.blocks[block]
        if it.references == 0:
            self._cached.take_block(block)
        it.references += 1
        return it.references

    cdef int32_t list_as(self, int32_t block, uint64_t hash) except -1 nogil:
        cdef int32_t element
        self._cached.prepare(1)
        element = self._cached.hold()
        self.prefixes.insert(element, hash)
        return element

    cdef int32_t release(self, int32_t* table, int32_t begin, int32_t end) except -1 nogil:
        cdef Block* blocks = self._cached.blocks
        cdef int32_t count = 0, nobodys = 0, num_left_alone = 0, i, block, references
        for i in range(end - 1, begin - 1, -1):
            block = table[i]
            table[i] = NO_BLOCK
            if block > NO_BLOCK:
                references = blocks[block].references - 1
                blocks[block].references = references
                if references > 0:
                    num_left_alone += references == 1
                    continue
                if nobodys > 0:
                    self._cached.append_nobodys(nobodys)
                    blocks, nobodys = self._cached.blocks, 0        # they may have moved
                self._cached.append_block(block)
            nobodys += block == NOBODYS
            count += block != NO_BLOCK
        if nobodys > 0:
            self._cached.append_nobodys(nobodys)
        self.num_left_alone = num_left_alone
        return count

    cdef int32_t blank(self, int32_t num_free) noexcept nogil:
        return num_free - self._cached.size

    # ---- the debug face

    def clear(self):
        """Forget all cached text; no block is held."""
        self._cached.evict(self._cached.size)

    def check(self, held, num_free):
        """Raise RuntimeError unless queue and references agree with the block tables; see NamedStore."""
        named = [name for name in held if name > 0]
        num_held, references = self._cached.num_held()
        self._cached.check()
        if len(set(named)) != num_held or len(named) != references:
            raise RuntimeError(f"{len(set(named))} blocks of shared text are held {len(named)} times, "
                               f"{num_held} and {references} counted")
        if num_free < self._cached.size:
            raise RuntimeError(f"{num_free} free blocks, of which {self._cached.size} hold something")
