"""Chunks of a replica's KV kept in host memory: vLLM's OffloadingConnector."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.kv.tier cimport External
from simulator.kv.tiers.chain cimport Chain
from simulator.kv.tiers.host cimport HostTier
from simulator.kv.tiers.reuse_counts cimport ReuseCounts
from simulator.kv.tiers.users cimport Users


@cython.final
cdef class OffloadingTier(HostTier):
    cdef readonly Chain chain           # levels below the host; None: there are none
    cdef list _levels                   # Level, its own and shared ones
    cdef Users _users
    cdef int32_t _chunk_blocks          # blocks of a chunk
    cdef int64_t _chunk_tokens
    cdef bint _in_step                  # loads are part of the iteration that admits; see Offloading, also for the next
    cdef int32_t _overlaps
    cdef bint _waits
    cdef bint _confirms
    cdef int64_t _promoted_tokens
    cdef RowList _lower                 # chunks of a text that the host lacks and a level has
    cdef ReuseCounts _counts            # None: a chunk is written at once
    cdef bint _lists_all                # there are no runs
    cdef bint _caches                   # the replica has a prefix cache
    cdef int32_t* _user_in              # [_room_slots] slot -> user, valid if the user's row is the slot's
    cdef int32_t _room_slots
    cdef RowList _leaving               # users that left since the last step, in order
    cdef int32_t _num_left              # requests that left, with or without a user
    cdef bint _told_of_leaving          # a request had left when the last step was formed
    cdef RowList _new                   # places of listed chunks to be written
    cdef RowList _new_runs              # pairs begin, end of runs to be written
    cdef int64_t _num_new               # chunks in both
    cdef int64_t _matched_tokens        # tokens found in the KV cache by the request that asked last
    cdef dict _left_blocks      # of the debug face: block tables of users that have left

    cdef int32_t _user_of(self, int32_t slot, int32_t row) except -2 nogil
    cdef int32_t _count_hits(self, int32_t user, int32_t begin, int32_t end, bint* is_late,
                             bint* is_read) except -1 nogil
    cdef int32_t _count_with_levels(self, int32_t user, int64_t local_tokens, int32_t end, bint* is_late,
                                    bint* is_read) except -1 nogil
    cdef bint _promote(self, int32_t user) except -1 nogil
    cdef int32_t _cut_out(self, int32_t row, int32_t begin, int32_t end) except 0 nogil
    cdef int _offer(self, int32_t user, int32_t end) except -1 nogil
    cdef int _sort_out(self, int32_t user, int32_t begin, int32_t end) except -1 nogil
    cdef int _sort_out_runs(self, int32_t row, int32_t begin, int32_t end) except -1 nogil
    cdef void _tell_missed(self, int32_t user) noexcept nogil
    cdef int _write(self, int32_t user) except -1 nogil
    cdef int _fence(self, int32_t user, int32_t slot) except -1 nogil
    cdef int _flush_touched(self) except -1 nogil
    cdef int _close(self, int32_t user) except -1 nogil
    cdef void _close_runs(self, int32_t row) noexcept nogil
    cdef void _close_several(self, int32_t row, int32_t first) noexcept nogil
    cdef void _forget(self, int32_t user) noexcept nogil
    cdef void _link_copy(self, int32_t user, int32_t copy) noexcept nogil
    cdef void _unlink_copy(self, int32_t user, int32_t copy) noexcept nogil
    cdef int _note(self, str what, int32_t copy) except -1 nogil
    cdef int _note_blocks(self, int32_t user, int32_t slot) except -1 nogil
