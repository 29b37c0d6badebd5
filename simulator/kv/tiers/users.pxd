"""What a tier remembers of each request while it is here: how far its text was offered, and which chunks it used."""
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.content cimport Content, Cursor


cdef struct User:
    int32_t row                 # the request; of one not in use: the next one, -1: none
    int32_t offered             # leading chunks of its text that were offered, loaded, or found too late
    int32_t num_listed          # leading chunks that others may share, see ChunkTable; those behind are runs
    int32_t num_hashed          # of these, with a hash
    int32_t room                # chunks that fit before both below must grow
    uint64_t* hashes            # [num_hashed] of the text up to the end of each chunk
    uint8_t* uses               # [num_hashed] see Use
    int32_t* elements           # [num_hashed] of the tier's table, of those used: where they were
    Cursor cursor               # behind the last of these
    int32_t first_copy          # under way or planned, linked by `sibling`; -1: none
    int32_t loaded_tokens       # since it was asked for last
    int32_t confirmed           # leading tokens whose computation has ended, as far as the step before knew
    int32_t last_chunk          # of one that has left: its text may be stored up to here
    int32_t generation          # of the places in `users`: one more each time that it is given away
    int8_t has_left
    int8_t is_closed            # and what it used was made known


@cython.final
cdef class Users:
    cdef User* users            # [_room]
    cdef Content _content
    cdef HashMap _user_of       # key_of(row) -> user, of those that are here
    cdef int32_t _chunk_tokens
    cdef bint _lists_all        # private text, too
    cdef int32_t _room
    cdef int32_t _free          # first not in use; -1: none
    cdef int32_t _absent        # a row that is not there, looked for lately; -1: unknown

    # The user of a request; -1: nothing is remembered of it. The same, or a new one.
    cdef inline int32_t find(self, int32_t row) noexcept nogil:
        return self._find(row) if self._user_of.size > 0 and row != self._absent else -1

    cdef int32_t get(self, int32_t row) except -1 nogil

    # Leading chunks of a text that others may share, or all.
    cdef int32_t listed_chunks(self, int32_t row) noexcept nogil

    # Have the hashes of the first `count` chunks, num_listed at most.
    cdef inline int hash(self, int32_t user, int32_t count) except -1 nogil:
        return self._hash(user, count) if self.users[user].num_hashed < count else 0

    # It has left: its row may come back as another user. Nothing is remembered of it any more.
    cdef void leave(self, int32_t user) noexcept nogil
    cdef void drop(self, int32_t user) noexcept nogil

    # Names a user for as long as it is one; the user that has this name, -1: it is none any more.
    cdef inline int64_t name(self, int32_t user) noexcept nogil:
        return <int64_t>self.users[user].generation << 32 | user

    cdef inline int32_t named(self, int64_t name) noexcept nogil:
        cdef int32_t user = <int32_t>(name & 0x7FFFFFFF)
        return user if self.users[user].generation == name >> 32 else -1

    cdef void clear(self) noexcept nogil

    cdef int32_t _find(self, int32_t row) noexcept nogil
    cdef int _hash(self, int32_t user, int32_t count) except -1 nogil
    cdef int _grow(self) except -1 nogil
