"""The levels below the host memory of a replica: what cascades down to them, and what they give back.

What has been stored in the host is then written to every level, from the next step on; it stays in the host until it
is there. What the host lacks is read into it from the first level that has it, and goes to the blocks from there.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.kv.tiers.chunk_table cimport ChunkTable
from simulator.kv.tiers.level cimport Level


cdef enum:
    MOST_LEVELS = 8


@cython.final
cdef class Chain:
    cdef readonly list levels
    cdef void* _levels[MOST_LEVELS]         # Level, borrowed
    cdef int32_t _clients[MOST_LEVELS]      # what the replica is to each
    cdef int32_t _num_levels
    cdef readonly bint is_shared            # by other replicas, in part
    cdef ChunkTable _host
    cdef RowList _stored                    # elements of the host to be written; then ends, of each text
    cdef RowList _stored_ends
    cdef uint64_t* _hashes                  # [_room] of one text
    cdef int32_t _room
    cdef int32_t _reading[MOST_LEVELS]      # jobs that the request at hand has opened; -1: none
    cdef RowList _reads                     # jobs to begin, and their levels
    cdef RowList _read_levels
    cdef readonly int64_t refusals          # reads for which the host had no room

    # The first level that can give a chunk, and where it has it; -1: none has it.
    cdef int32_t find(self, uint64_t hash, int32_t* element) noexcept nogil

    # It is read for a request into an element of the host that is being written; the request wants nothing more.
    cdef int read(self, int32_t level, int32_t element, int32_t there) except -1 nogil
    cdef void end_request(self) noexcept nogil

    # An element of the host was stored; the copy brought nothing more.
    cdef int stored(self, int32_t element) except -1 nogil
    cdef int end_copy(self) except -1 nogil

    # Take notice of what was done by `now_ns`, and write what was stored. Begin the reads that were asked for.
    cdef int begins(self, int64_t now_ns) except -1 nogil
    cdef int begin_reads(self, int64_t now_ns) except -1 nogil

    cdef int64_t next_end_ns(self) noexcept nogil

    # Nothing is to begin. The same, and nothing is under way.
    cdef inline bint is_quiet(self) noexcept nogil:
        return self._stored_ends.size + self._reads.size == 0

    cdef bint is_idle(self) noexcept nogil

    # The replica has failed, and the host holds nothing any more.
    cdef int fail(self) except -1 nogil

    cdef int _settle(self, Level level, int32_t client) except -1 nogil
    cdef void _keep(self, Level level, int32_t job) noexcept nogil
    cdef int _write(self, int32_t begin, int32_t end, int64_t now_ns) except -1 nogil
