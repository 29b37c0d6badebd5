"""Chunks of a replica's KV kept in host memory: vLLM's OffloadingConnector."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.kv.tier cimport External
from simulator.kv.tiers.chain cimport Chain
from simulator.kv.tiers.host cimport HostTier
from simulator.kv.tiers.lru_by_request cimport LruByRequest
from simulator.kv.tiers.reuse_counts cimport ReuseCounts
from simulator.kv.tiers.users cimport Part, Users


cdef enum:
    CHUNK_BITS = 26             # a *place*, chunk `chunk` of a text in group `group`, is group << CHUNK_BITS | chunk
    MOST_GROUPS = 32


cdef inline int32_t place_of(int32_t group, int32_t chunk) noexcept nogil:
    return group << CHUNK_BITS | chunk

cdef inline int32_t chunk_of(int32_t place) noexcept nogil:
    return place & ((1 << CHUNK_BITS) - 1)


cdef class OffloadingTier(HostTier):
    cdef readonly Chain chain           # levels below the host; None: there are none
    cdef list _levels                   # Level, its own and shared ones
    cdef Users _users
    cdef int32_t _chunk_blocks          # blocks of a chunk
    cdef int64_t _chunk_tokens          # of the group that is searched first
    cdef bint _in_step                  # loads are part of the iteration that admits; see Offloading, also for the next
    cdef int64_t _step_tokens           # that a step may load, with which it begins late; and those of the step at hand
    cdef int64_t _step_used
    cdef int32_t _overlaps
    cdef bint _waits
    cdef bint _confirms
    cdef bint _offers_again
    cdef bint _drops_last
    cdef LruByRequest _ranking  # the policy, if it ranks requests; else None
    cdef int64_t _promoted_tokens
    cdef bint _sees_below               # the lookup at hand counts chunks that only a level has, and notes them in
    cdef RowList _lower                 # places
    cdef ReuseCounts _counts            # None: a chunk is written at once
    cdef bint _lists_all                # there are no runs
    cdef bint _caches                   # the replica has a prefix cache
    cdef int32_t* _user_in              # [_room_slots] slot -> user, valid if the user's row is the slot's
    cdef int32_t _room_slots
    cdef RowList _leaving               # users that left since the last step, in order
    cdef int32_t _num_left              # requests that left, with or without a user
    cdef bint _had_leaving              # a request had left when the last step was formed
    cdef RowList _new                   # places of listed chunks to be written
    cdef RowList _new_runs              # pairs begin, end of runs to be written
    cdef int64_t _num_in_runs           # chunks in them
    cdef int64_t _matched_tokens        # tokens found in the KV cache by the request that asked last
    cdef dict _left_blocks      # of the debug face: block tables of users that have left

    # The part of a request's text that a place is in.
    @cython.final
    cdef inline Part* _part(self, int32_t user, int32_t place) noexcept nogil:
        return self._users.part(user, place >> CHUNK_BITS)

    # The tokens of a hit behind the local ones, in whole chunks of the first group; less than a chunk is no hit unless
    # loads are part of a step. Is a chunk of it being written? Does another request load one?
    cdef int64_t _hit(self, int32_t user, int64_t text, int64_t local_tokens, bint* is_late,
                      bint* is_read) except -1 nogil

    # The tokens found are loaded within the step, if it may load so many more and a token is left to compute.
    @cython.final
    cdef void _load_in_step(self, int64_t text, int64_t local_tokens, External* found) noexcept nogil

    # Does a level have a chunk that the host lacks? Then note it, if the lookup sees levels. A chunk of the host that a
    # hit needs stays while such chunks are read.
    @cython.final
    cdef bint _is_below(self, int32_t user, int32_t place) except -1 nogil

    @cython.final
    cdef void _keep_for_hit(self, int32_t element) noexcept nogil

    # The hit, with chunks of levels below: they are read into the host, and the answer is UNDECIDED.
    @cython.final
    cdef int64_t _hit_with_levels(self, int32_t user, int64_t text, int64_t local_tokens, bint* is_late,
                                  bint* is_read) except -1 nogil

    @cython.final
    cdef bint _promote(self, int32_t user) except -1 nogil

    @cython.final
    cdef int32_t _user_of(self, int32_t slot, int32_t row) except -2 nogil

    @cython.final
    cdef int _read(self, int32_t user, int32_t group, int32_t begin, int32_t end, int32_t copy) except -1 nogil

    @cython.final
    cdef int _offer_all(self, int32_t user, int32_t end) except -1 nogil

    # Separate listed chunks of a group into `_new` and those that are there.
    @cython.final
    cdef int _sort_out(self, int32_t user, int32_t group, int32_t begin, int32_t end) except -1 nogil

    @cython.final
    cdef int _sort_out_runs(self, int32_t user, int32_t begin, int32_t end) except -1 nogil

    # Begin an offer. fits(): make room for the new chunks; False: there is none.
    @cython.final
    cdef void _begin_offer(self) noexcept nogil

    @cython.final
    cdef bint _fits(self, int32_t user) except -1 nogil

    # Plan one copy of all new chunks, which have `num_blocks` blocks; return it.
    @cython.final
    cdef int32_t _write(self, int32_t user, int64_t num_blocks) except -1 nogil

    # The mark of a request that uses a chunk. Report listed chunks that it uses for the first time.
    @cython.final
    cdef int32_t _mark(self, int32_t user) except -1 nogil

    @cython.final
    cdef int _rank(self, int32_t user, int32_t group, int32_t begin, int32_t end) except -1 nogil

    # A number that is the higher, the further back a chunk ends in its text; at equal ends the first group's.
    cdef int64_t _order_of(self, int32_t place) noexcept nogil

    @cython.final
    cdef int _fence(self, int32_t user, int32_t slot) except -1 nogil

    @cython.final
    cdef int _flush_user(self, int32_t user) except -1 nogil
    cdef int _flush_touched(self) except -1 nogil

    # Report to the policy the chunks that a request used, from the last to the first, after it has left.
    cdef int _close(self, int32_t user) except -1 nogil

    @cython.final
    cdef int _close_leaving(self) except -1 nogil

    cdef void _forget(self, int32_t user) noexcept nogil

    @cython.final
    cdef void _link_copy(self, int32_t user, int32_t copy) noexcept nogil

    @cython.final
    cdef void _unlink_copy(self, int32_t user, int32_t copy) noexcept nogil

    # A copy is done: count it.
    cdef void _count_done(self, int32_t copy) noexcept nogil
    cdef int _note(self, str what, int32_t copy) except -1 nogil

    @cython.final
    cdef int _note_blocks(self, int32_t user, int32_t slot) except -1 nogil
