"""The levels below the host memory of a replica: writes that cascade down to them, and reads from them.

A chunk stored in the host is then written to every level, from the next step on; it stays in the host until it is
there. A chunk that the host lacks is read into it from the first level that has it, and copied to blocks from there.
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
    cdef int32_t _clients[MOST_LEVELS]      # [level] the replica's number as a client of it
    cdef int32_t _num_levels
    cdef readonly bint is_shared            # other replicas share at least one level
    cdef ChunkTable _host
    cdef RowList _stored                    # elements of the host to be written; the ends of each text's part
    cdef RowList _stored_ends
    cdef uint64_t* _hashes                  # [_room] of one text
    cdef int32_t _room
    cdef int32_t _reading[MOST_LEVELS]      # jobs that the request at hand has opened; -1: none
    cdef RowList _reads                     # jobs to begin, and their levels
    cdef RowList _read_levels
    cdef readonly int64_t refusals          # reads for which the host had no room

    # Return the first level that can read a chunk, and its element there; -1: there is none.
    cdef int32_t find(self, uint64_t hash, int32_t* element) noexcept nogil

    # Read a chunk for a request into a new element of the host. The request needs no more chunks.
    cdef int read(self, int32_t level, int32_t element, int32_t there) except -1 nogil
    cdef void end_request(self) noexcept nogil

    # An element of the host was stored; the copy has stored all its elements.
    cdef int stored(self, int32_t element) except -1 nogil
    cdef int end_copy(self) except -1 nogil

    # Notice reads and writes that ended by `now_ns`, and begin to write stored elements. Begin the requested reads.
    cdef int begins(self, int64_t now_ns) except -1 nogil
    cdef int begin_reads(self, int64_t now_ns) except -1 nogil

    cdef int64_t next_end_ns(self) noexcept nogil

    # No read or write is to begin. is_idle(): and none is in flight.
    cdef inline bint is_quiet(self) noexcept nogil:
        return self._stored_ends.size + self._reads.size == 0

    cdef bint is_idle(self) noexcept nogil

    # The replica has failed: host memory is empty.
    cdef int fail(self) except -1 nogil

    cdef int _settle(self, Level level, int32_t client) except -1 nogil
    cdef void _keep(self, Level level, int32_t job) noexcept nogil
    cdef int _write(self, int32_t begin, int32_t end, int64_t now_ns) except -1 nogil
