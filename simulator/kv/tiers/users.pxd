"""State of each request in a tier while it is here: how far its text was offered, and the chunks it used."""
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.content cimport Content, Cursor


cdef struct Part:               # of a text, in one group of layers
    int32_t offered             # leading chunks that were offered, loaded, passed over, or found too late
    int32_t num_hashed          # leading listed chunks with a hash
    int32_t room                # chunks that fit before the next three must grow
    uint64_t* hashes            # [num_hashed] of the text up to the end of each chunk: keys of the tier's table
    uint8_t* uses               # [num_hashed] see Use
    int32_t* elements           # [num_hashed] elements of the tier's table, of used chunks; may be out of date
    int32_t size                # blocks; where layers are in groups, as are the next three
    int32_t room_blocks         # that fit before the next two must grow
    int32_t* blocks             # [size] of its table in the KV cache, as they were when the tier took them over
    int64_t* turns              # [size] turn in which it took them over; FOR_EVER: later reuse does not matter


cdef struct User:
    int32_t row                 # the request; of a user not in use: the next one, -1: none
    int32_t num_listed          # leading chunks that others may share, see ChunkTable; chunks behind are in runs
    Cursor cursor               # behind the last hashed chunk
    int32_t first_copy          # in flight or planned, linked by `sibling`; -1: none
    int32_t loaded_tokens       # since the last `match`
    int32_t confirmed           # leading tokens that were computed when the step before was formed
    int32_t last_chunk          # once it has left: its text may be stored up to here
    int32_t generation          # raised each time that the index is reused
    int32_t num_hashes          # of its text, one each `grain` tokens; where layers are in groups, as are all below
    int32_t room_hashes
    uint64_t* hashes            # [num_hashes]
    int64_t limit               # leading tokens of its text that may be stored by the step being formed
    int64_t junction            # see KVCache.junction
    int64_t states_turn         # when its states were stored last
    int32_t mark                # of the policy, see LruByRequest.open; 0: it has none
    int8_t offers               # it has left, and has chunks to offer
    int8_t has_left
    int8_t is_closed            # it has left, and the policy got its uses


cdef class Users:
    cdef User* users            # [_room]
    cdef Part* _parts           # [_room][num_groups]
    cdef int32_t num_groups
    cdef Content _content
    cdef HashMap _user_of       # key_of(row) -> user, until its request leaves
    cdef int32_t _chunk_tokens
    cdef bint _lists_all        # private text, too
    cdef int32_t _room
    cdef int32_t _free          # first not in use; -1: none
    cdef int32_t _absent        # a row without a user, looked up lately; -1: unknown

    @cython.final
    cdef inline Part* part(self, int32_t user, int32_t group) noexcept nogil:
        return &self._parts[<size_t>user * self.num_groups + group]

    # The user of a request; -1: it has none. get(): the user, a new one if it has none.
    @cython.final
    cdef inline int32_t find(self, int32_t row) noexcept nogil:
        return self._find(row) if self._user_of.size > 0 and row != self._absent else -1

    @cython.final
    cdef int32_t get(self, int32_t row) except -1 nogil

    # Leading chunks of a text that others may share, or all.
    @cython.final
    cdef int32_t listed_chunks(self, int32_t row) noexcept nogil

    # Compute the hashes of the first `count` chunks, num_listed at most, if all layers are one group.
    @cython.final
    cdef inline int hash(self, int32_t user, int32_t count) except -1 nogil:
        return self._hash(user, count) if self.part(user, 0).num_hashed < count else 0

    # Have room for `count` chunks of a part; those without a hash are not used yet.
    @cython.final
    cdef int reserve(self, Part* part, int32_t count) except -1 nogil

    # The request has left: its row may come back as another user. drop(): forget the user.
    @cython.final
    cdef void leave(self, int32_t user) noexcept nogil

    @cython.final
    cdef void drop(self, int32_t user) noexcept nogil

    # A name for a user until it is dropped; the user with this name, -1: it was dropped.
    @cython.final
    cdef inline int64_t name(self, int32_t user) noexcept nogil:
        return <int64_t>self.users[user].generation << 32 | user

    @cython.final
    cdef inline int32_t named(self, int64_t name) noexcept nogil:
        cdef int32_t user = <int32_t>(name & 0x7FFFFFFF)
        return user if self.users[user].generation == name >> 32 else -1

    @cython.final
    cdef void clear(self) noexcept nogil

    @cython.final
    cdef int32_t _find(self, int32_t row) noexcept nogil

    @cython.final
    cdef int _hash(self, int32_t user, int32_t count) except -1 nogil

    @cython.final
    cdef int _grow(self) except -1 nogil
