"""Replicas that hold the blocks of a text, by medium; a prompt is matched against all replicas at once."""
from libc.stdint cimport int8_t, int32_t, uint64_t
cimport cython

from simulator.signals.media cimport NUM_MEDIA


cdef struct Leading:            # the beginning of a text
    const uint64_t* blocks      # [num_blocks] hashes up to the end of each block
    const uint64_t* chunks      # [num_chunks] up to the end of each chunk
    int32_t num_blocks
    int32_t num_chunks


@cython.final
cdef class TierHolders:
    cdef readonly int32_t num_replicas
    cdef readonly int32_t chunk_blocks      # blocks of a chunk, the unit in which tiers hold texts
    cdef list _set_list                     # [medium] HolderSets; those of SHARED hold the numbers of stores
    cdef void* _sets[NUM_MEDIA]             # [medium] pointers of _set_list, borrowed
    cdef readonly int32_t num_stores
    cdef uint64_t* _members                 # [word] bit r: replica r takes part
    cdef uint64_t* _reach                   # [store x word] it reads from the store
    cdef int32_t _num_words
    cdef uint64_t* _scratch                 # [medium x word] sets of only one replica
    cdef uint64_t* _alive                   # [medium x word] replicas still being counted
    cdef uint64_t* _shared                  # [word] scratch
    cdef uint64_t* _stores                  # scratch: a set of stores
    cdef int32_t* found                     # [medium x replica] blocks; 0 for replicas that take no part

    # A chunk can be read from now on by this replica, or by the readers of this store; or is gone.
    cdef int note(self, int32_t medium, uint64_t hash, int32_t holder, bint is_there) except -1 nogil

    # How many leading blocks each replica has on DEVICE; how many follow in HOST; after these on DISK; and how many
    # follow in SHARED stores after those on DEVICE. For `media`, bit m: medium m; other media: 0.
    cdef void match_in_turn(self, const Leading* text, int32_t media) noexcept nogil

    # How many leading blocks each replica has at all, each counted at the first medium in `order` that has it;
    # [num_ordered], others count as nothing.
    cdef void match_best(self, const Leading* text, const int8_t* order, int32_t num_ordered) noexcept nogil

    cdef const uint64_t* _set_of(self, int32_t medium, const Leading* text, int32_t block) noexcept nogil
    cdef const uint64_t* _readers_of(self, uint64_t hash) noexcept nogil
    cdef bint _pass_on(self, int32_t medium, const uint64_t* holders, int32_t block, int32_t heirs) noexcept nogil
    cdef bint _move(self, const uint64_t** holders, const int8_t* order, int32_t num_ordered,
                    int32_t block) noexcept nogil
