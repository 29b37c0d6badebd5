"""State of each request in a tier while it is here."""
from libc.stdint cimport INT32_MAX
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from simulator.core.memory cimport resize
from simulator.kv.returning cimport key_of


cdef class Users:
    """Users by request: the state of each request in the tier.

    content : the texts of the requests.
    chunk_tokens : tokens of a chunk.
    lists_all : private text, too, is listed chunk by chunk.
    num_groups : groups of layers with chunks of their own.
    """

    def __cinit__(self, Content content, int32_t chunk_tokens, bint lists_all, int32_t num_groups=1, *_):
        self._content, self._chunk_tokens, self._lists_all = content, chunk_tokens, lists_all
        self.num_groups = num_groups
        self._user_of = HashMap()
        self._free = self._absent = -1

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self._room):
            free(self.users[i].hashes)
        for i in range(<int64_t>self._room * self.num_groups):
            free(self._parts[i].hashes)
            free(self._parts[i].uses)
            free(self._parts[i].elements)
            free(self._parts[i].blocks)
            free(self._parts[i].turns)
        free(self.users)
        free(self._parts)

    def share_content(self, Content content):
        """See KVCache."""
        self._content = content

    cdef int _grow(self) except -1 nogil:
        cdef int32_t before = self._room, after = 2 * self._room + 16, i
        cdef size_t width = self.num_groups * sizeof(Part)
        resize(&self.users, after * sizeof(User))
        resize(&self._parts, after * width)
        memset(self.users + before, 0, (after - before) * sizeof(User))
        memset(<char*>self._parts + before * width, 0, (after - before) * width)
        self._room = after
        for i in range(after - 1, before - 1, -1):
            self.users[i].row = self._free
            self.users[i].has_left = self.users[i].is_closed = True
            self._free = i
        return 0

    cdef int32_t _find(self, int32_t row) noexcept nogil:
        cdef int32_t user = self._user_of.get(key_of(row))
        if user < 0:
            self._absent = row
        return user

    cdef int32_t get(self, int32_t row) except -1 nogil:
        cdef int32_t user = self.find(row), group
        cdef User* it
        cdef Part* part
        if user >= 0:
            return user
        if self._free < 0:
            self._grow()
        user = self._free
        self._absent = -1
        self._user_of.put(key_of(row), user)
        it = &self.users[user]
        self._free = it.row
        it.row, it.num_listed = row, self.listed_chunks(row)
        it.loaded_tokens = it.last_chunk = it.confirmed = it.num_hashes = 0
        it.states_turn = it.mark = 0
        it.first_copy = -1
        it.offers = it.has_left = it.is_closed = False
        for group in range(self.num_groups):
            part = self.part(user, group)
            part.offered = part.num_hashed = part.size = 0
        return user

    cdef inline int32_t listed_chunks(self, int32_t row) noexcept nogil:
        return INT32_MAX if self._lists_all else self._content.public_tokens(row) // self._chunk_tokens

    cdef int reserve(self, Part* part, int32_t count) except -1 nogil:
        if count > part.room:
            resize(&part.hashes, 2 * <size_t>count * sizeof(uint64_t))
            resize(&part.uses, 2 * <size_t>count)
            resize(&part.elements, 2 * <size_t>count * sizeof(int32_t))
            part.room = 2 * count
        memset(part.uses + part.num_hashed, 0, count - part.num_hashed)
        return 0

    cdef int _hash(self, int32_t user, int32_t count) except -1 nogil:
        cdef User* it = &self.users[user]
        cdef Part* part = self.part(user, 0)
        cdef int32_t known = 0, i
        cdef const uint64_t* first
        self.reserve(part, count)
        if part.num_hashed == 0:
            memset(&it.cursor, 0, sizeof(it.cursor))
            first = self._content.first_hashes(it.row, self._chunk_tokens, &known)
            known = min(known, count)
            if known > 0:
                memcpy(part.hashes, first, known * sizeof(uint64_t))
                it.cursor = self._content.behind(it.row, self._chunk_tokens, part.hashes, known)
        for i in range(max(part.num_hashed, known), count):
            part.hashes[i] = self._content.advance(it.row, self._chunk_tokens, &it.cursor)
        part.num_hashed = count
        return 0

    cdef void leave(self, int32_t user) noexcept nogil:
        self.users[user].has_left = True
        self._user_of.remove(key_of(self.users[user].row))

    cdef void drop(self, int32_t user) noexcept nogil:
        self.users[user].generation += 1
        self.users[user].has_left = self.users[user].is_closed = True
        self.users[user].row = self._free
        self._free = user

    cdef void clear(self) noexcept nogil:
        cdef int32_t i
        self._user_of.clear()
        self._free = -1
        for i in range(self._room - 1, -1, -1):
            self.drop(i)
