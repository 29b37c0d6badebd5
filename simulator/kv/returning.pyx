"""Blocks that preempted requests left behind and may find again."""
from libc.stdlib cimport free, realloc
cimport cython

from simulator.core.errors cimport out_of_memory
from simulator.core.memory cimport resize


@cython.final
cdef class ReturningBlocks:
    """By request, the private blocks it had when it was preempted."""

    def __cinit__(self):
        self._entry_of = HashMap()
        self._free = -1

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.num_entries):
            free(self._entries[i].blocks)
        free(self._entries)

    cdef Returning* get(self, int32_t row) noexcept nogil:
        cdef int32_t entry = self._entry_of.get(key_of(row))
        return &self._entries[entry] if entry >= 0 else NULL

    cdef int32_t find(self, int32_t row, int32_t found, int32_t most, const Block* blocks,
                      int32_t* hits) noexcept nogil:
        cdef int32_t count = 0, i, block, index
        cdef Returning* entry = self.get(row)
        if entry == NULL:
            return found
        for i in range(found, most):
            hits[i] = 0
        for i in range(entry.count):                    # oldest first: of two copies the one inserted first is hit
            block, index = entry.blocks[i].block, entry.blocks[i].index
            if blocks[block].hash == private_hash(row, index):
                entry.blocks[count] = entry.blocks[i]
                count += 1
                if found <= index < most and hits[index] == 0:
                    hits[index] = block
        entry.count = count
        while found < most and hits[found] != 0:
            found += 1
        return found

    cdef int keep(self, int32_t row, const int32_t* table, int32_t begin, int32_t end) except -1 nogil:
        cdef Returning* entry = self._entry(row)
        cdef int32_t old = entry.count, i, index
        cdef LeftBlock* blocks
        if old + end - begin > entry.room:
            resize(&entry.blocks, (old + end - begin) * sizeof(LeftBlock))
            entry.room = old + end - begin
        blocks = entry.blocks
        for i in range(begin, end):
            blocks[old + i - begin].index = i
            blocks[old + i - begin].block = table[i]
        for i in range(old):                            # a block that is known already keeps its place
            index = blocks[i].index
            if begin <= index < end and blocks[i].block == table[index]:
                blocks[old + index - begin].block = 0
        for i in range(old, old + end - begin):
            if blocks[i].block != 0:
                blocks[entry.count] = blocks[i]
                entry.count += 1
        return 0

    cdef void drop(self, int32_t row) noexcept nogil:
        cdef int32_t entry = self._entry_of.remove(key_of(row))
        if entry < 0:
            return
        free(self._entries[entry].blocks)
        self._entries[entry].blocks = NULL
        self._entries[entry].row = self._free           # the free entries are a list
        self._free = entry
        self.size -= 1

    cdef Returning* _entry(self, int32_t row) except NULL nogil:
        cdef Returning* entry = self.get(row)
        cdef Returning* entries
        cdef int32_t i = self._free
        if entry != NULL:
            return entry
        if i < 0 and self.num_entries == self._room:
            entries = <Returning*>realloc(self._entries, (2 * self._room + 16) * sizeof(Returning))
            if entries == NULL:
                out_of_memory()
                return NULL
            self._entries = entries
            self._room = 2 * self._room + 16
        if i < 0:
            i = self.num_entries
            self.num_entries += 1
            self._entries[i].row = -1
        self._entry_of.put(key_of(row), i)
        self._free = self._entries[i].row
        entry = &self._entries[i]
        entry.row = row
        entry.count = 0
        entry.room = 0
        entry.blocks = NULL
        self.size += 1
        return entry
