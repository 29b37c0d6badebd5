"""Readers and writers of the levels below the host memory of one replica, as BLIS models it: a queueing station.

Each level has readers and writers. A free reader takes the read that waits longest, or if there is none the write that
waits longest; a free writer prefers writes. The duration of a job is fixed when its service begins: whole microseconds,
by the number of jobs of its direction then in service.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint64_t
cimport cython

from simulator.core.clock cimport NEVER_NS


cdef enum:                      # ways; READ goes before WRITE in a tie
    READ = 0
    WRITE = 1


cdef struct Job:
    int64_t ends_ns             # once it is in service
    int64_t submitted_ns
    int64_t number              # 1, 2, 3, ... in order of submission
    uint64_t* hashes            # [count] of its blocks
    int32_t count
    int32_t room                # hashes that fit before they must grow
    int32_t num_blocks          # that it moves
    int32_t following           # next job in its queue, among those done, or among those not in use; -1: none
    int16_t level
    int8_t way
    int8_t server               # READ: a reader serves it, WRITE: a writer


cdef struct Servers:            # of one level
    double base_us
    double bytes_per_us[2]      # [way] the full bandwidth
    double first_frac           # share of the bandwidth for one job; 1: all
    int32_t full_depth          # jobs of one way from which on all bandwidth is used
    int32_t free[2]             # [way] readers and writers
    int32_t active[2]           # [way] jobs being served
    int32_t first[2]            # [way] first job that waits; -1: none
    int32_t last[2]
    int64_t num_started[2]      # jobs submitted so far; done; their blocks; their time
    int64_t num_done[2]
    int64_t num_blocks[2]
    int64_t busy_ns[2]
    int64_t num_cancelled


@cython.final
cdef class Station:
    cdef Job* jobs                      # [_room]
    cdef Servers* servers               # [num_levels]
    cdef readonly int32_t num_levels
    cdef int32_t _room
    cdef int32_t _free                  # first job not in use; -1: none
    cdef int32_t* _heap                 # [_num_served] jobs in service; children of i: 2i + 1, 2i + 2
    cdef int32_t _num_served
    cdef int32_t _first_done, _last_done    # -1: none
    cdef int64_t _now_ns
    cdef int64_t _number
    cdef double _block_bytes

    # Open an empty job; add hashes; submit it, in order of time.
    cdef int32_t open(self, int32_t level, int way) except -1 nogil
    cdef int add(self, int32_t job, uint64_t hash) except -1 nogil
    cdef void submit(self, int32_t job, int32_t num_blocks, int64_t now_ns) noexcept nogil

    # Let time pass. Take the next done job, in order of end, then of submission; -1: there is none. Give it back then.
    cdef void advance(self, int64_t until_ns) noexcept nogil
    cdef int32_t take_done(self) noexcept nogil
    cdef void give_back(self, int32_t job) noexcept nogil

    # When the next job ends; NEVER_NS: none is being served.
    cdef inline int64_t next_end_ns(self) noexcept nogil:
        return self.jobs[self._heap[0]].ends_ns if self._num_served > 0 else NEVER_NS

    # Cancel all jobs.
    cdef void cancel_all(self) noexcept nogil

    cdef bint _goes_before(self, int32_t one, int32_t other) noexcept nogil
    cdef void _push(self, int32_t job) noexcept nogil
    cdef int32_t _pop(self) noexcept nogil
    cdef void _assign(self, int32_t level, int64_t now_ns) noexcept nogil
    cdef void _serve(self, Servers* servers, int server, int64_t now_ns) noexcept nogil
    cdef int64_t _duration_ns(self, const Servers* servers, const Job* job) noexcept nogil
    cdef void _cancel(self, int32_t job) noexcept nogil
    cdef int _grow(self) except -1 nogil
