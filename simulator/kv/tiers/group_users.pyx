"""State of each request in a tier while it is here, where layers are in groups."""
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.memory cimport resize
from simulator.kv.content cimport Content
from simulator.kv.hybrid.layer_kind cimport Table
from simulator.kv.tiers.users cimport User


@cython.final
cdef class GroupUsers(Users):
    """Users with a part for each group of layers; see Users.

    kv : GroupTables of the replica.
    """

    def __init__(self, Content content, int32_t chunk_tokens, bint lists_all, int32_t num_groups, GroupTables kv):
        self._kv = kv
        self.keeps_all = <bint*>calloc(num_groups, sizeof(bint))
        if self.keeps_all == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.keeps_all)

    cdef int name_chunks(self, int32_t user, int32_t group, int32_t chunk_tokens, int32_t count) except -1 nogil:
        cdef User* it = &self.users[user]
        cdef Part* part = self.part(user, group)
        cdef int32_t grain = self._kv.grain(), step = chunk_tokens // grain, i
        if count <= part.num_hashed:
            return 0
        if count * step > it.room_hashes:
            resize(&it.hashes, 2 * <size_t>count * step * sizeof(uint64_t))
            it.room_hashes = 2 * count * step
        if it.num_hashes == 0:
            memset(&it.cursor, 0, sizeof(it.cursor))
        for i in range(it.num_hashes, count * step):
            it.hashes[i] = self._content.advance(it.row, grain, &it.cursor)
        it.num_hashes = max(it.num_hashes, count * step)
        self.reserve(part, count)
        for i in range(part.num_hashed, count):
            part.hashes[i] = self._kv.key(group, it.hashes[(i + 1) * step - 1])
        part.num_hashed = count
        return 0

    cdef void forget_blocks(self, int32_t user) noexcept nogil:
        cdef int32_t group
        for group in range(self.num_groups):
            self.part(user, group).size = 0

    cdef int take_blocks(self, int32_t user, int32_t slot) except -1 nogil:
        cdef const Table* table
        cdef Part* part
        cdef int32_t group, i
        for group in range(self.num_groups):
            table, part = self._kv.table(slot, group), self.part(user, group)
            if table.size > part.room_blocks:
                resize(&part.blocks, 2 * <size_t>table.size * sizeof(int32_t))
                resize(&part.turns, 2 * <size_t>table.size * sizeof(int64_t))
                part.room_blocks = 2 * table.size
            for i in range(part.size, table.size):
                part.blocks[i], part.turns[i] = table.blocks[i], FOR_EVER if self.keeps_all[group] else self._kv.turn
                if table.blocks[i] > 0 and not self._kv.was_announced(slot, group, i):
                    self._kv.announce(table.blocks[i])
            part.size = max(part.size, table.size)
        return 0

    cdef void pass_over(self, Part* part, int32_t end, int32_t chunk_blocks) noexcept nogil:
        cdef int32_t i
        for i in range(part.offered * chunk_blocks, min(end * chunk_blocks, part.size)):
            part.blocks[i], part.turns[i] = self.block(part, i), FOR_EVER
        part.offered = max(part.offered, end)
