"""State of each request in a tier while it is here, where layers are in groups: chunks offered, and chunks used."""
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.kv.content cimport Content, Cursor
from simulator.kv.hybrid.tables cimport GroupTables


cdef struct Part:               # of a text: one group of layers
    int32_t next                # leading chunks that were offered, loaded, or passed over
    int32_t num_keys
    int32_t room_keys           # that fit before the next two must grow
    uint64_t* keys              # [num_keys] of the tier's table, by chunk
    uint8_t* uses               # [num_keys] see Use
    int32_t size                # blocks
    int32_t room                # that fit before the next two must grow
    int32_t* blocks             # [size] of its table in the KV cache, as they were when the tier took them over
    int64_t* turns              # [size] turn in which it took them over; FOR_EVER: later reuse does not matter


cdef struct GroupUser:
    int32_t row                 # the request; of a user not in use: the next one, -1: none
    int32_t first_copy          # in flight or planned, linked by `sibling`; -1: none
    int32_t loaded_tokens       # since the last `match`
    int64_t limit               # leading tokens of its text that may be stored by the step being formed
    int64_t junction            # see KVCache.junction
    int64_t states_turn         # when its states were stored last
    int32_t num_hashes          # of its text, one each `grain` tokens
    int32_t room_hashes
    uint64_t* hashes            # [num_hashes]
    Cursor cursor               # behind the last of `hashes`
    int8_t offers               # it has left, and has chunks to offer
    int8_t is_closed            # it has left, and the policy got its uses


cdef extern from *:
    const int64_t FOR_EVER "INT64_MAX"      # an enum of Cython's is an int to it: one this long would be -1


@cython.final
cdef class GroupUsers:
    cdef GroupUser* users       # [_room]
    cdef Part* _parts           # [_room][num_groups]
    cdef int32_t num_groups
    cdef bint* keeps_all        # [num_groups] blocks of the group are not freed while the sequence is here
    cdef Content _content
    cdef GroupTables _kv
    cdef HashMap _user_of       # key_of(row) -> user, until its request leaves
    cdef int32_t _room
    cdef int32_t _free          # first not in use; -1: none

    @cython.final
    cdef inline Part* part(self, int32_t user, int32_t group) noexcept nogil:
        return &self._parts[<size_t>user * self.num_groups + group]

    # The user of a request; -1: it has none. get(): the user, a new one if it has none.
    cdef int32_t find(self, int32_t row) noexcept nogil
    cdef int32_t get(self, int32_t row) except -1 nogil

    # Compute the keys of the first `count` chunks of a group, of `chunk_tokens` tokens each.
    cdef int name_chunks(self, int32_t user, int32_t group, int32_t chunk_tokens, int32_t count) except -1 nogil

    # Its sequence has no blocks any more.
    cdef void forget_blocks(self, int32_t user) noexcept nogil

    # Take over the blocks that its slot got since the last call; their use is announced to the fences.
    cdef int take_blocks(self, int32_t user, int32_t slot) except -1 nogil

    # The block at a place; 0: it has been reused since, or there was none.
    cdef inline int32_t block(self, const Part* part, int32_t place) noexcept nogil:
        return 0 if self._kv.was_given_after(part.turns[place], part.blocks[place]) else part.blocks[place]

    # The blocks up to chunk `end` were dealt with: keep them as they are, whether reused later or not.
    cdef void pass_over(self, Part* part, int32_t end, int32_t chunk_blocks) noexcept nogil

    # The request has left: its row may come back as another user. drop(): forget the user.
    cdef void leave(self, int32_t user) noexcept nogil
    cdef void drop(self, int32_t user) noexcept nogil
    cdef void clear(self) noexcept nogil

    cdef int _grow(self) except -1 nogil
