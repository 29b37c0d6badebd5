"""A store of KV below host memory: its chunks, and the reads and writes that share its link.

It belongs to one replica, or all replicas of a cluster share it. A user of the store is a *client*: it looks when a
step is formed, and clients look in order of time. A read copies chunks into the host of a client, a write copies them
from there. Copies of one direction share the link equally, or writes go one by one. A copy that begins later can only
delay copies in flight, so a client can know how long it may go on without looking.
"""
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.kv.chunk_store cimport ChunkStore
from simulator.kv.tiers.chunk_table cimport ChunkTable
from simulator.kv.tiers.lane cimport Lane


cdef enum Way:
    WRITE = 0
    READ = 1


cdef struct Job:
    int64_t alone_ns            # when it would end with the link to itself
    int32_t* here               # [num_chunks] elements of the store's table
    int32_t* there              # [num_chunks] of the client's
    int32_t num_chunks
    int32_t room                # chunks that fit before both must grow
    int32_t client
    int32_t following           # next done job of its client; of a job not in use: the next one; -1: none
    int8_t way
    int8_t is_orphan            # its client has failed: it goes on to its end, without effect


cdef struct Client:
    RowList underway            # jobs
    int32_t first_done, last_done   # done jobs that it has not taken; -1: none


@cython.final
cdef class Level(ChunkStore):
    cdef readonly ChunkTable table
    cdef object _settings               # LevelSettings
    cdef Lane _writes, _reads
    cdef Job* jobs                      # [_room]
    cdef int32_t _room
    cdef int32_t _free                  # first not in use; -1: none
    cdef Client* _clients
    cdef int32_t _num_clients
    cdef double _base_ns, _write_ns, _read_ns       # the last two of a chunk
    cdef int64_t _lease_ns              # a chunk that was read cannot be evicted for so long; 0: it can
    cdef int64_t _full_chunks           # from this size on more chunks are evicted than needed; 0: never
    cdef int64_t _batch_chunks          # number of chunks evicted then, at least
    cdef readonly int64_t num_started, num_writes, num_reads, num_cancelled, dropped, evicted
    cdef int64_t _written_chunks, _read_chunks, _hit_chunks

    # Add a client; return its number.
    cdef int32_t join(self) except -1 nogil

    # The element that can be read of a text up to this hash; 0: there is none.
    cdef inline int32_t find(self, uint64_t hash) noexcept nogil:
        cdef int32_t element = self.table.find(hash)
        return element if element != 0 and self.table.chunks[element].references >= 0 else 0

    # Open an empty job; add chunks to a read; begin it. A chunk that is read is not evicted until the job ends.
    cdef int32_t open(self, int32_t client, Way way) except -1 nogil
    cdef int read(self, int32_t job, int32_t element, int32_t there) except -1 nogil
    cdef int begin(self, int32_t job, int64_t now_ns) except -1 nogil

    # Begin to write the absent ones of the `count` chunks with `hashes`, which follow one another in a text; returns
    # the job, -1: none is absent, or there is no room. `there`: elements of the client's table.
    cdef int32_t write(self, int32_t client, const uint64_t* hashes, const int32_t* there, int32_t count,
                       int64_t now_ns) except -2 nogil

    # Let time pass. Take the next done job of a client; -1: there is none. Give it back then.
    cdef int advance(self, int64_t until_ns) except -1 nogil
    cdef int32_t take_done(self, int32_t client) noexcept nogil
    cdef void give_back(self, int32_t job) noexcept nogil

    # No job of a client ends before that; NEVER_NS: it has none in flight.
    cdef int64_t next_end_ns(self, int32_t client) noexcept nogil

    # A client has failed, with its jobs in flight; cancel a read that has not begun.
    cdef int abandon(self, int32_t client) except -1 nogil
    cdef void cancel(self, int32_t job) noexcept nogil

    cdef bint _make_room(self, int64_t count, int64_t touched, int64_t now_ns) noexcept nogil
    cdef int64_t _evict(self, int64_t count, int64_t now_ns) noexcept nogil
    cdef int _take_ended(self, Lane lane, int64_t until_ns) except -1 nogil
    cdef void _end(self, int32_t job) noexcept nogil
    cdef int _grow(self) except -1 nogil
    cdef int _add_chunk(self, int32_t job, int32_t here, int32_t there) except -1 nogil
