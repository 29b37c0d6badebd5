"""State of each request in a tier while it is here, where layers are in groups."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.core.memory cimport resize
from simulator.kv.content cimport Content
from simulator.kv.hybrid.layer_kind cimport Table
from simulator.kv.hybrid.tables cimport GroupTables
from simulator.kv.returning cimport key_of


@cython.final
cdef class GroupUsers:
    """Users by request: the state of each request in the tier.

    kv : GroupTables of the replica. num_groups : groups of its layers. content : the texts of the requests.
    """

    def __cinit__(self, GroupTables kv, int32_t num_groups, Content content):
        self._kv, self.num_groups, self._content = kv, num_groups, content
        self._user_of = HashMap()
        self._free = -1
        self.keeps_all = <bint*>calloc(num_groups, sizeof(bint))
        if self.keeps_all == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self._room):
            free(self.users[i].hashes)
        for i in range(<int64_t>self._room * self.num_groups):
            free(self._parts[i].keys)
            free(self._parts[i].uses)
            free(self._parts[i].blocks)
            free(self._parts[i].turns)
        free(self.users)
        free(self.keeps_all)
        free(self._parts)

    def share_content(self, Content content):
        """See KVCache."""
        self._content = content

    cdef int _grow(self) except -1 nogil:
        cdef int32_t before = self._room, after = 2 * self._room + 16, i
        cdef size_t width = self.num_groups * sizeof(Part)
        resize(&self.users, after * sizeof(GroupUser))
        resize(&self._parts, after * width)
        memset(self.users + before, 0, (after - before) * sizeof(GroupUser))
        memset(<char*>self._parts + before * width, 0, (after - before) * width)
        self._room = after
        for i in range(after - 1, before - 1, -1):
            self.drop(i)
        return 0

    cdef int32_t find(self, int32_t row) noexcept nogil:
        return self._user_of.get(key_of(row)) if self._user_of.size > 0 else -1

    cdef int32_t get(self, int32_t row) except -1 nogil:
        cdef int32_t user = self.find(row), group
        cdef GroupUser* it
        cdef Part* part
        if user >= 0:
            return user
        if self._free < 0:
            self._grow()
        user = self._free
        self._user_of.put(key_of(row), user)
        it = &self.users[user]
        self._free = it.row
        it.row = row
        it.first_copy = -1
        it.loaded_tokens = it.num_hashes = 0
        it.limit = it.junction = it.states_turn = 0
        it.offers = it.is_closed = False
        memset(&it.cursor, 0, sizeof(it.cursor))
        for group in range(self.num_groups):
            part = self.part(user, group)
            part.next = part.num_keys = part.size = 0
        return user

    cdef int name_chunks(self, int32_t user, int32_t group, int32_t chunk_tokens, int32_t count) except -1 nogil:
        cdef GroupUser* it = &self.users[user]
        cdef Part* part = self.part(user, group)
        cdef int32_t grain = self._kv.grain(), step = chunk_tokens // grain, i
        if count <= part.num_keys:
            return 0
        if count * step > it.room_hashes:
            resize(&it.hashes, 2 * <size_t>count * step * sizeof(uint64_t))
            it.room_hashes = 2 * count * step
        for i in range(it.num_hashes, count * step):
            it.hashes[i] = self._content.advance(it.row, grain, &it.cursor)
        it.num_hashes = max(it.num_hashes, count * step)
        if count > part.room_keys:
            resize(&part.keys, 2 * <size_t>count * sizeof(uint64_t))
            resize(&part.uses, 2 * <size_t>count)
            part.room_keys = 2 * count
        for i in range(part.num_keys, count):
            part.keys[i] = self._kv.key(group, it.hashes[(i + 1) * step - 1])
            part.uses[i] = 0
        part.num_keys = count
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
            if table.size > part.room:
                resize(&part.blocks, 2 * <size_t>table.size * sizeof(int32_t))
                resize(&part.turns, 2 * <size_t>table.size * sizeof(int64_t))
                part.room = 2 * table.size
            for i in range(part.size, table.size):
                part.blocks[i], part.turns[i] = table.blocks[i], FOR_EVER if self.keeps_all[group] else self._kv.turn
                if table.blocks[i] > 0 and not self._kv.was_announced(slot, group, i):
                    self._kv.announce(table.blocks[i])
            part.size = max(part.size, table.size)
        return 0

    cdef void pass_over(self, Part* part, int32_t end, int32_t chunk_blocks) noexcept nogil:
        cdef int32_t i
        for i in range(part.next * chunk_blocks, min(end * chunk_blocks, part.size)):
            part.blocks[i], part.turns[i] = self.block(part, i), FOR_EVER
        part.next = max(part.next, end)

    cdef void leave(self, int32_t user) noexcept nogil:
        self._user_of.remove(key_of(self.users[user].row))

    cdef void drop(self, int32_t user) noexcept nogil:
        self.users[user].is_closed = True
        self.users[user].row = self._free
        self._free = user

    cdef void clear(self) noexcept nogil:
        cdef int32_t i
        self._user_of.clear()
        self._free = -1
        for i in range(self._room - 1, -1, -1):
            self.drop(i)
