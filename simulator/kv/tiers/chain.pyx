"""The levels below the host memory of a replica."""
from libc.stdlib cimport free
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.memory cimport resize
from simulator.core.row_list cimport add_row
from simulator.kv.tiers.level cimport READ, Job


@cython.final
cdef class Chain:
    """Reads and writes of one replica at the levels below its host memory.

    levels : list of Level, the nearest first; each is the replica's own or shared.
    host : ChunkTable of its host memory.
    """

    def __init__(self, levels, ChunkTable host):
        cdef Level level
        if len(levels) > MOST_LEVELS:
            raise ValueError(f"{len(levels)} levels; at most {MOST_LEVELS} are supported")
        self.levels, self._host = list(levels), host
        for i, level in enumerate(self.levels):
            self._levels[<int32_t>i], self._clients[<int32_t>i] = <void*>level, level.join()
            self._reading[<int32_t>i] = -1
            self.is_shared = self.is_shared or level.settings.scope == "cluster"
        self._num_levels = len(self.levels)

    def __dealloc__(self):
        free(self._stored.rows)
        free(self._stored_ends.rows)
        free(self._hashes)
        free(self._reads.rows)
        free(self._read_levels.rows)

    # ---- reads

    cdef int32_t find(self, uint64_t hash, int32_t* element) noexcept nogil:
        cdef int32_t i
        for i in range(self._num_levels):
            element[0] = (<Level>self._levels[i]).find(hash)
            if element[0] != 0:
                return i
        return -1

    cdef int read(self, int32_t level, int32_t element, int32_t there) except -1 nogil:
        if self._reading[level] < 0:
            self._reading[level] = (<Level>self._levels[level]).open(self._clients[level], READ)
            add_row(&self._reads, self._reading[level])
            add_row(&self._read_levels, level)
        self._host.chunks[there].loads = 1
        return (<Level>self._levels[level]).read(self._reading[level], element, there)

    cdef void end_request(self) noexcept nogil:
        cdef int32_t i
        for i in range(self._num_levels):
            self._reading[i] = -1

    cdef int begin_reads(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        for i in range(self._reads.size):
            (<Level>self._levels[self._read_levels.rows[i]]).begin(self._reads.rows[i], now_ns)
        self._reads.size = self._read_levels.size = 0
        return 0

    # ---- writes

    cdef int stored(self, int32_t element) except -1 nogil:
        self._host.pin(element)
        return add_row(&self._stored, element)

    cdef int end_copy(self) except -1 nogil:
        return add_row(&self._stored_ends, self._stored.size)

    cdef int begins(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i, begin = 0
        for i in range(self._num_levels):
            (<Level>self._levels[i]).advance(now_ns)
            self._settle(<Level>self._levels[i], self._clients[i])
        for i in range(self._stored_ends.size):
            self._write(begin, self._stored_ends.rows[i], now_ns)
            begin = self._stored_ends.rows[i]
        self._stored.size = self._stored_ends.size = 0
        return 0

    cdef int _write(self, int32_t begin, int32_t end, int64_t now_ns) except -1 nogil:
        """Write chunks of one text to every level; the host keeps each until it is written there."""
        cdef int32_t count = end - begin, i
        if self._room < count:
            resize(&self._hashes, 2 * <size_t>count * sizeof(uint64_t))
            self._room = 2 * count
        for i in range(count):
            self._hashes[i] = self._host.chunks[self._stored.rows[begin + i]].hash
        for i in range(self._num_levels):
            self._keep((<Level>self._levels[i]), (<Level>self._levels[i]).write(
                self._clients[i], self._hashes, self._stored.rows + begin, count, now_ns))
        for i in range(begin, end):
            self._host.unpin(self._stored.rows[i])
        return 0

    cdef void _keep(self, Level level, int32_t job) noexcept nogil:
        """Keep in the host the chunks that a job writes; -1: there is no job."""
        cdef int32_t i
        for i in range(level.jobs[job].num_chunks if job >= 0 else 0):
            self._host.pin(level.jobs[job].there[i])

    cdef int _settle(self, Level level, int32_t client) except -1 nogil:
        """Update host memory for the jobs that are done."""
        cdef int32_t job = level.take_done(client), i
        cdef const Job* it
        while job >= 0:
            it = &level.jobs[job]
            for i in range(it.num_chunks):
                if it.way == READ:
                    self._host.chunks[it.there[i]].loads = 0
                    self._host.written(it.there[i])
                else:
                    self._host.unpin(it.there[i])
            level.give_back(job)
            job = level.take_done(client)
        return 0

    # ---- questions

    cdef int64_t next_end_ns(self) noexcept nogil:
        cdef int64_t end_ns = NEVER_NS
        cdef int32_t i
        for i in range(self._num_levels):
            end_ns = min(end_ns, (<Level>self._levels[i]).next_end_ns(self._clients[i]))
        return end_ns

    cdef bint is_idle(self) noexcept nogil:
        return self.is_quiet() and self.next_end_ns() == NEVER_NS

    cdef int fail(self) except -1 nogil:
        cdef int32_t i
        for i in range(self._reads.size):
            (<Level>self._levels[self._read_levels.rows[i]]).cancel(self._reads.rows[i])
        self._reads.size = self._read_levels.size = self._stored.size = self._stored_ends.size = 0
        for i in range(self._num_levels):
            (<Level>self._levels[i]).abandon(self._clients[i])
        return 0

    def check(self):
        """Raise RuntimeError unless the levels agree with themselves."""
        for level in self.levels:
            level.check()
