"""Readers and writers of the levels below the host memory of one replica, as BLIS models it: a queueing station.

A job of n bytes takes base + n / (b r) us, the quotient cut to whole microseconds, with bandwidth b; r rises from
`first_frac` with one job of its direction to 1 with `full_depth`. Source: inference-sim (BLIS) at 9be04fd5,
sim/kvtransfer/station.go; equal to runs of f90a1e3a.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.memory cimport resize

cdef enum:
    FIRST_JOBS = 32             # doubled with need
cdef double LONGEST_US = 1e15   # beyond the end of the clock


@cython.final
cdef class Station:
    """Readers and writers of some levels.

    levels : protocols.blis_chain.ServedLevel each, the nearest first.
    block_bytes : bytes of a block that each accelerator copies.
    """

    def __init__(self, levels, double block_bytes):
        cdef Servers* it
        cdef int32_t i, way
        self.num_levels, self._block_bytes = len(levels), block_bytes
        self._free = self._first_done = self._last_done = -1
        self.servers = <Servers*>calloc(max(self.num_levels, 1), sizeof(Servers))
        if self.servers == NULL:
            raise MemoryError()
        for i, level in enumerate(levels):
            it = &self.servers[i]
            it.base_us, it.first_frac, it.full_depth = level.base_us, level.first_frac, level.full_depth
            it.bytes_per_us[READ], it.bytes_per_us[WRITE] = level.read_gb_per_s * 1e3, level.write_gb_per_s * 1e3
            it.free[READ], it.free[WRITE] = level.readers, level.writers
            for way in range(2):
                it.first[way] = it.last[way] = -1

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._room):
            free(self.jobs[i].hashes)
        free(self.jobs)
        free(self.servers)
        free(self._heap)

    # ---- jobs

    cdef int _grow(self) except -1 nogil:
        cdef int32_t before = self._room, after = max(2 * self._room, <int32_t>FIRST_JOBS), i
        resize(&self._heap, after * sizeof(int32_t))
        resize(&self.jobs, after * sizeof(Job))
        memset(self.jobs + before, 0, (after - before) * sizeof(Job))
        self._room = after
        for i in range(after - 1, before - 1, -1):
            self.give_back(i)
        return 0

    cdef void give_back(self, int32_t job) noexcept nogil:
        self.jobs[job].count = 0
        self.jobs[job].following = self._free
        self._free = job

    cdef int32_t open(self, int32_t level, int way) except -1 nogil:
        cdef int32_t job
        if self._free < 0:
            self._grow()
        job = self._free
        self._free = self.jobs[job].following
        self.jobs[job].level, self.jobs[job].way, self.jobs[job].following = level, way, -1
        return job

    cdef int add(self, int32_t job, uint64_t hash) except -1 nogil:
        cdef Job* it = &self.jobs[job]
        cdef int32_t room = 2 * it.room + 1
        if it.count == it.room:
            resize(&it.hashes, room * sizeof(uint64_t))
            it.room = room
        it.hashes[it.count] = hash
        it.count += 1
        return 0

    cdef void submit(self, int32_t job, int32_t num_blocks, int64_t now_ns) noexcept nogil:
        cdef Job* it = &self.jobs[job]
        cdef Servers* servers = &self.servers[it.level]
        self.advance(now_ns)
        self._number += 1
        it.number, it.submitted_ns, it.num_blocks = self._number, now_ns, num_blocks
        if servers.last[it.way] < 0:
            servers.first[it.way] = job
        else:
            self.jobs[servers.last[it.way]].following = job
        servers.last[it.way] = job
        servers.num_started[it.way] += 1
        self._assign(it.level, max(now_ns, self._now_ns))

    # ---- service

    cdef void _assign(self, int32_t level, int64_t now_ns) noexcept nogil:
        cdef Servers* servers = &self.servers[level]
        cdef int32_t way
        for way in range(2):
            while servers.free[way] > 0 and (servers.first[READ] >= 0 or servers.first[WRITE] >= 0):
                self._serve(servers, way, now_ns)

    cdef void _serve(self, Servers* servers, int server, int64_t now_ns) noexcept nogil:
        """Let a free server begin the next job: of its own direction, if there is one."""
        cdef int32_t way = server if servers.first[server] >= 0 else 1 - server, job = servers.first[way]
        cdef Job* it = &self.jobs[job]
        cdef int64_t duration_ns
        servers.first[way] = it.following
        if it.following < 0:
            servers.last[way] = -1
        it.server, it.following = server, -1
        servers.free[server] -= 1
        servers.active[way] += 1
        duration_ns = self._duration_ns(servers, it)
        servers.busy_ns[way] += duration_ns
        it.ends_ns = now_ns + duration_ns
        self._push(job)

    cdef int64_t _duration_ns(self, const Servers* servers, const Job* job) noexcept nogil:
        cdef double rate = servers.bytes_per_us[job.way], us
        cdef int32_t depth = servers.active[job.way]
        if servers.full_depth >= 2 and servers.first_frac < 1 and depth < servers.full_depth:
            rate = rate * (servers.first_frac + (1 - servers.first_frac) * <double>(depth - 1)
                           / <double>(servers.full_depth - 1))
        us = servers.base_us + <double><int64_t>min(<double>job.num_blocks * self._block_bytes / rate, LONGEST_US)
        return 1000 * <int64_t>us

    cdef void advance(self, int64_t until_ns) noexcept nogil:
        cdef int32_t job
        cdef Servers* servers
        if until_ns <= self._now_ns:
            return
        while self.next_end_ns() <= until_ns:
            job = self._pop()
            servers = &self.servers[self.jobs[job].level]
            servers.free[self.jobs[job].server] += 1
            servers.active[self.jobs[job].way] -= 1
            servers.num_done[self.jobs[job].way] += 1
            servers.num_blocks[self.jobs[job].way] += self.jobs[job].num_blocks
            if self._last_done < 0:
                self._first_done = job
            else:
                self.jobs[self._last_done].following = job
            self._last_done = job
            self._assign(self.jobs[job].level, self.jobs[job].ends_ns)
        self._now_ns = until_ns

    cdef int32_t take_done(self) noexcept nogil:
        cdef int32_t job = self._first_done
        if job >= 0:
            self._first_done = self.jobs[job].following
            if self._first_done < 0:
                self._last_done = -1
        return job

    # ---- the heap, in order of end

    cdef bint _goes_before(self, int32_t one, int32_t other) noexcept nogil:
        cdef const Job* a = &self.jobs[one]
        cdef const Job* b = &self.jobs[other]
        if a.ends_ns != b.ends_ns:
            return a.ends_ns < b.ends_ns
        if a.submitted_ns != b.submitted_ns:
            return a.submitted_ns < b.submitted_ns
        if a.level != b.level:
            return a.level < b.level
        return a.way < b.way if a.way != b.way else a.number < b.number

    cdef void _push(self, int32_t job) noexcept nogil:
        cdef int32_t place = self._num_served, above = (place - 1) // 2
        while place > 0 and self._goes_before(job, self._heap[above]):
            self._heap[place] = self._heap[above]
            place = above
            above = (place - 1) // 2
        self._heap[place] = job
        self._num_served += 1

    cdef int32_t _pop(self) noexcept nogil:
        cdef int32_t first = self._heap[0], place = 0, below = 1, moved
        self._num_served -= 1
        moved = self._heap[self._num_served]
        while below < self._num_served:
            if below + 1 < self._num_served and self._goes_before(self._heap[below + 1], self._heap[below]):
                below += 1
            if not self._goes_before(self._heap[below], moved):
                break
            self._heap[place] = self._heap[below]
            place = below
            below = 2 * place + 1
        self._heap[place] = moved
        return first

    # ---- a failure

    cdef void cancel_all(self) noexcept nogil:
        cdef int32_t level, way, job
        cdef Servers* servers
        while self._num_served > 0:
            job = self._pop()
            servers = &self.servers[self.jobs[job].level]
            servers.free[self.jobs[job].server] += 1
            servers.active[self.jobs[job].way] -= 1
            self._cancel(job)
        for level in range(self.num_levels):
            for way in range(2):
                while self.servers[level].first[way] >= 0:
                    job = self.servers[level].first[way]
                    self.servers[level].first[way] = self.jobs[job].following
                    self._cancel(job)
                self.servers[level].last[way] = -1

    cdef void _cancel(self, int32_t job) noexcept nogil:
        self.servers[self.jobs[job].level].num_cancelled += 1
        self.give_back(job)

    # ---- counters

    def row(self, int32_t level):
        """Return the counters of a level, a dict of fields of `records.KV_TIER`."""
        cdef const Servers* it = &self.servers[level]
        started, done = it.num_started[READ] + it.num_started[WRITE], it.num_done[READ] + it.num_done[WRITE]
        return {"stores": it.num_done[WRITE], "stored_chunks": it.num_blocks[WRITE], "loads": it.num_done[READ],
                "loaded_chunks": it.num_blocks[READ], "started": started, "cancelled": it.num_cancelled,
                "underway": started - done - it.num_cancelled, "store_busy_ns": it.busy_ns[WRITE],
                "load_busy_ns": it.busy_ns[READ]}

    def check(self):
        """Raise RuntimeError unless the jobs agree with the counts, and their order with their ends."""
        cdef int32_t i, level, way
        cdef Servers* servers
        for i in range(1, self._num_served):
            if self._goes_before(self._heap[i], self._heap[(i - 1) // 2]):
                raise RuntimeError(f"job {self._heap[i]} ends before the one above it")
        served = [0] * self.num_levels
        for i in range(self._num_served):
            served[self.jobs[self._heap[i]].level] += 1
        for level in range(self.num_levels):
            servers = &self.servers[level]
            waiting = 0
            for way in range(2):
                i = servers.first[way]
                while i >= 0:
                    waiting += 1
                    i = self.jobs[i].following
                if waiting and servers.free[READ] + servers.free[WRITE]:
                    raise RuntimeError(f"level {level}: jobs wait though a server is free")
            counted = self.row(level)["underway"]
            if served[level] + waiting != counted or servers.active[READ] + servers.active[WRITE] != served[level]:
                raise RuntimeError(f"level {level}: {counted} jobs counted, {served[level]} served, {waiting} wait")
