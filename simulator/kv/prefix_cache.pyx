"""The prefix cache: chained hashing, with the links inside the blocks."""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.errors cimport out_of_memory


@cython.final
cdef class PrefixCache:
    """Index of the cached blocks of a pool; `relocate` gives it their records."""

    def __cinit__(self):
        self._buckets = <int32_t*>calloc(1, sizeof(int32_t))
        if self._buckets == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._buckets)

    cdef int relocate(self, Block* blocks, int32_t num_records) except -1 nogil:
        cdef uint64_t size = self._mask + 1, mask
        cdef int32_t* buckets
        cdef int32_t block
        self.blocks = blocks
        while size < <uint64_t>num_records:
            size *= 2
        buckets = <int32_t*>calloc(size, sizeof(int32_t))
        if buckets == NULL:
            return out_of_memory()
        mask = size - 1
        for block in range(1, num_records):
            if blocks[block].hash != 0 and blocks[block].chain >= 0:
                blocks[block].chain = buckets[blocks[block].hash & mask]
                buckets[blocks[block].hash & mask] = block
        free(self._buckets)
        self._buckets, self._mask = buckets, mask
        return 0

    cdef void insert(self, int32_t block, uint64_t hash) noexcept nogil:
        cdef Block* blocks = self.blocks
        cdef int32_t first = self.find(hash), last
        blocks[block].hash = hash
        if first == 0:
            blocks[block].twin_prev = blocks[block].twin_next = block
            blocks[block].chain = self._buckets[hash & self._mask]
            self._buckets[hash & self._mask] = block
            if self.log is not None:
                self.log.note(hash, True)
            return
        if self.drops_hashes:
            self._replace(block, first)
            return
        last = blocks[first].twin_prev
        blocks[block].chain = TWIN
        blocks[block].twin_prev = last
        blocks[block].twin_next = first
        blocks[last].twin_next = blocks[first].twin_prev = block

    cdef void _replace(self, int32_t block, int32_t found) noexcept nogil:
        """Let a lookup find `block`, which has the same hash, instead of `found`."""
        cdef Block* blocks = self.blocks
        cdef int32_t* link = &self._buckets[blocks[block].hash & self._mask]
        while link[0] != found:
            link = &blocks[link[0]].chain
        link[0] = block
        blocks[block].chain, blocks[found].chain = blocks[found].chain, TWIN
        blocks[block].twin_prev = blocks[block].twin_next = block

    cdef void _drop(self, uint64_t hash) noexcept nogil:
        """Let a lookup of this hash find nothing any more."""
        cdef int32_t found = self.find(hash)
        if found != 0:
            self._unlist(found)
            self.blocks[found].chain = TWIN

    cdef int32_t find_text(self, Content content, int32_t row, int32_t block_size, int32_t count, int32_t* found,
                           Cursor* cursor) except -1 nogil:
        cdef int32_t num_first, i = 0
        cdef const uint64_t* first = content.first_hashes(row, block_size, &num_first)
        cdef Cursor ahead
        memset(cursor, 0, sizeof(Cursor))
        num_first = min(num_first, count) if self.ahead == 0 else 0
        while i < num_first:
            found[i] = self.find(first[i])
            if found[i] == 0:
                break
            i += 1
        if i > 0:
            cursor[0] = content.behind(row, block_size, first, i)
        if i < num_first:
            return i
        ahead = cursor[0]
        while i < count:
            found[i] = self.find(content.next_hash(row, block_size, self.ahead, &ahead))
            if found[i] == 0:
                break
            cursor[0] = ahead
            i += 1
        return i

    cdef int insert_text(self, Content content, int32_t row, int32_t block_size, const int32_t* blocks, int32_t begin,
                         int32_t end, Cursor* cursor) except -1 nogil:
        cdef int32_t num_first, i
        cdef const uint64_t* first = content.first_hashes(row, block_size, &num_first)
        num_first = min(num_first, end) if self.ahead == 0 else 0
        for i in range(begin, num_first):
            self.insert(blocks[i], first[i])
        if num_first > begin:
            cursor[0] = content.behind(row, block_size, first, num_first)
        for i in range(max(begin, num_first), end):
            self.insert(blocks[i], content.next_hash(row, block_size, self.ahead, cursor))
        return 0

    cdef void _unlist(self, int32_t block) noexcept nogil:
        cdef Block* it = &self.blocks[block]
        cdef int32_t* link
        if it.chain >= 0:
            link = &self._buckets[it.hash & self._mask]
            while link[0] != block:
                link = &self.blocks[link[0]].chain
            if it.twin_next == block:
                link[0] = it.chain
                if self.log is not None:
                    self.log.note(it.hash, False)
            else:
                link[0] = it.twin_next
                self.blocks[it.twin_next].chain = it.chain
        self.blocks[it.twin_prev].twin_next = it.twin_next
        self.blocks[it.twin_next].twin_prev = it.twin_prev

    def clear(self, int32_t num_records):
        """Forget the texts of all records; no block is in use."""
        cdef int32_t block
        for block in range(1, num_records):
            if self.blocks[block].hash != 0:
                self.remove(block)
