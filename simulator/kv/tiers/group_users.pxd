"""State of each request in a tier while it is here, where layers are in groups: its blocks, too."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.hybrid.tables cimport GroupTables
from simulator.kv.tiers.users cimport Part, Users


cdef extern from *:
    const int64_t FOR_EVER "INT64_MAX"      # an enum of Cython's is an int to it: one this long would be -1


@cython.final
cdef class GroupUsers(Users):
    cdef bint* keeps_all        # [num_groups] blocks of the group are not freed while the sequence is here
    cdef GroupTables _kv

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
