"""KV blocks that are held for programs while their tools run.

The free queue is that of `SparseKV`, but held blocks are set aside: they are taken only when all other free blocks are.
A hold is the path of leading blocks of a turn's text. A block may be on several paths, and is held while it is on one.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.hash_map cimport HashMap
from simulator.core.index_heap cimport IndexHeap
from simulator.domain.request cimport Demand, Request
from simulator.kv.sparse cimport SparseKV


cdef enum HoldPolicy:           # when a hold ends, and the order in which holds are given back under pressure
    TTL                         # at a time after the turn's end; the hold that would end first
    PIN                         # with the program; the oldest hold
    PREDICTED                   # with the program; the hold with the farthest expected next turn


cdef struct Hold:               # of a program: the blocks of its last turn
    int32_t* path               # [room] elements of leading blocks; the last is given back first
    int32_t count               # blocks still held; 0: the hold is over
    int32_t following           # of a hold that is over: the next one; -1: none
    int32_t room
    int32_t session
    int64_t begin_ns            # end of the turn


@cython.final
cdef class RetainingKV(SparseKV):
    cdef int64_t now_ns         # start of the batch that is being formed; set by the scheduler
    cdef HoldPolicy _policy
    cdef int64_t _ttl_ns
    cdef int32_t _most_held     # blocks set aside at most
    cdef int32_t _set_aside     # blocks that no sequence owns and some hold has
    cdef int32_t _ring          # element before and behind the blocks set aside
    cdef int32_t* _holders      # [element below _room_holders] holds with this block
    cdef int32_t _room_holders
    cdef Hold* _holds           # [_num_holds]
    cdef int32_t _num_holds
    cdef int32_t _room_holds
    cdef IndexHeap _order       # holds that are not over, the next to be given back first
    cdef int32_t _over          # first of the holds that are over; -1: none
    cdef HashMap _hold_of       # key of a session -> its hold
    cdef const Request[::1] _requests
    cdef const Demand[::1] _demands
    cdef const int64_t[::1] _tool_ns            # [row] expected time to the next turn; -1: it is the last turn
    cdef const int64_t[::1] _from_arrival       # [row] 1: that time counts from the turn's arrival, 0: from its end
    cdef readonly int64_t num_holds, num_found, num_expired     # holds that began, found by a next turn, ended by time
    cdef readonly int64_t blocks_found          # held blocks when the next turn came
    cdef readonly int64_t blocks_given_back     # taken under pressure
    cdef readonly int64_t blocks_over_share     # given back since more than max_share would have been held
    cdef readonly int32_t most_set_aside
    cdef readonly double held_block_s           # blocks x time, of holds that were found or expired

    cdef void _admit(self, int32_t row) noexcept nogil
    cdef void _make_room(self, int64_t taken) noexcept nogil
    cdef int64_t _give_back(self, int64_t count) noexcept nogil
    cdef void _mark_hits(self, int32_t before, int32_t after) noexcept nogil
    cdef int _hold(self, int32_t row, const int32_t* path, int32_t count) except -1 nogil
    cdef void _end(self, int32_t hold) noexcept nogil
    cdef void _end_whole(self, int32_t hold) noexcept nogil
    cdef bint _drop(self, int32_t element) noexcept nogil
    cdef void _put_aside(self, int32_t element) noexcept nogil
    cdef int32_t _held_times(self, int32_t element) noexcept nogil
    cdef int64_t _key_of(self, int32_t row) noexcept nogil
    cdef int32_t _new_hold(self) except -1 nogil
    cdef int _grow_holders(self, int32_t element) except -1 nogil
