"""A store of KV below host memory, and the reads and writes that share its link."""
from libc.stdlib cimport free
from libc.string cimport memset
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.memory cimport resize
from simulator.core.row_list cimport add_row
from simulator.kv.tiers.chunk_table cimport WRITING, Chunk

from simulator.kv.tiers.fair_lane import FairLane
from simulator.kv.tiers.fifo_lane import FifoLane


@cython.final
cdef class Level(ChunkStore):
    """One store; evicts the chunk that was used longest ago.

    Of one text the end is evicted first.

    settings : LevelSettings.
    """

    def __init__(self, settings):
        self._settings = settings
        self._base_ns = settings.base_us * 1e3
        self._write_ns = settings.chunk_bytes / settings.write_bytes_per_s * 1e9
        self._read_ns = settings.chunk_bytes / settings.read_bytes_per_s * 1e9
        self._lease_ns = round(settings.lease_s * 1e9)
        self._full_chunks = int(settings.full_at * settings.chunks) if settings.full_at < 1 else 0
        self._batch_chunks = int(settings.goes_at_once * settings.chunks)
        self._writes = (FifoLane if settings.writes_in_turn else FairLane)(self._base_ns, self._write_ns)
        self._reads = FairLane(self._base_ns, self._read_ns)
        self.table = ChunkTable(settings.chunks)
        self._free = -1

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._room):
            free(self.jobs[i].here)
            free(self.jobs[i].there)
        free(self.jobs)
        for i in range(self._num_clients):
            free(self._clients[i].underway.rows)
        free(self._clients)

    @property
    def settings(self):
        """The LevelSettings it was built from."""
        return self._settings

    cdef int32_t join(self) except -1 nogil:
        resize(&self._clients, (self._num_clients + 1) * sizeof(Client))
        memset(&self._clients[self._num_clients], 0, sizeof(Client))
        self._clients[self._num_clients].first_done = self._clients[self._num_clients].last_done = -1
        self._num_clients += 1
        return self._num_clients - 1

    # ---- jobs

    cdef int _grow(self) except -1 nogil:
        cdef int32_t before = self._room, after = 2 * self._room + 8, i
        resize(&self.jobs, after * sizeof(Job))
        memset(self.jobs + before, 0, (after - before) * sizeof(Job))
        self._room = after
        for i in range(after - 1, before - 1, -1):
            self.give_back(i)
        return 0

    cdef void give_back(self, int32_t job) noexcept nogil:
        self.jobs[job].num_chunks = 0
        self.jobs[job].following = self._free
        self._free = job

    cdef int32_t open(self, int32_t client, Way way) except -1 nogil:
        cdef int32_t job
        if self._free < 0:
            self._grow()
        job = self._free
        self._free = self.jobs[job].following
        self.jobs[job].client, self.jobs[job].way, self.jobs[job].is_orphan = client, way, False
        self.jobs[job].following = -1
        self.num_started += 1
        return job

    cdef int _add_chunk(self, int32_t job, int32_t here, int32_t there) except -1 nogil:
        cdef Job* it = &self.jobs[job]
        if it.num_chunks == it.room:
            resize(&it.here, (2 * it.room + 4) * sizeof(int32_t))
            resize(&it.there, (2 * it.room + 4) * sizeof(int32_t))
            it.room = 2 * it.room + 4
        it.here[it.num_chunks], it.there[it.num_chunks] = here, there
        it.num_chunks += 1
        return 0

    cdef int read(self, int32_t job, int32_t element, int32_t there) except -1 nogil:
        self._add_chunk(job, element, there)
        self.table.pin(element)
        self._hit_chunks += 1
        return 0

    cdef int begin(self, int32_t job, int64_t now_ns) except -1 nogil:
        cdef Job* it = &self.jobs[job]
        cdef int32_t i
        add_row(&self._clients[it.client].underway, job)
        if it.way == WRITE:
            it.alone_ns = now_ns + <int64_t>(self._base_ns + self._write_ns * <double>it.num_chunks)
            return self._writes.begin(job, it.num_chunks, now_ns)
        for i in range(it.num_chunks - 1, -1, -1):
            self.table.move_back(it.here[i], 0)
            self.table.chunks[it.here[i]].guard = now_ns + self._lease_ns
        it.alone_ns = now_ns + <int64_t>(self._base_ns + self._read_ns * <double>it.num_chunks)
        return self._reads.begin(job, it.num_chunks, now_ns)

    cdef int32_t write(self, int32_t client, const uint64_t* hashes, const int32_t* there, int32_t count,
                       int64_t now_ns) except -2 nogil:
        cdef int32_t job, element, num_new = 0, touched = 0, i
        for i in range(count - 1, -1, -1):
            element = self.table.find(hashes[i])
            if element == 0:
                num_new += 1
            elif self.table.chunks[element].references != WRITING:
                touched += self.table.is_idle(element)
                self.table.move_back(element, 0)
        if num_new == 0:
            return -1
        if not self._make_room(num_new, touched, now_ns):
            self.dropped += 1
            return -1
        self.table.prepare(num_new)
        job = self.open(client, WRITE)
        for i in range(count - 1, -1, -1):
            if self.table.find(hashes[i]) == 0:
                self._add_chunk(job, self.table.add(hashes[i], 0, 0), there[i])
        self.begin(job, now_ns)
        return job

    cdef bint _make_room(self, int64_t count, int64_t touched, int64_t now_ns) noexcept nogil:
        """Evict chunks for `count` new ones; `touched`: idle ones of the same text, at the list's end, that stay."""
        cdef int64_t lacking = self.table.size() + count - self.table.capacity, most = self.table.num_idle - touched
        if lacking > most:
            return False
        if self._full_chunks > 0 and self.table.size() + count > self._full_chunks:
            self._evict(min(max(lacking, self._batch_chunks), most), now_ns)
        elif lacking > 0:
            self._evict(lacking, now_ns)
        return self.table.size() + count <= self.table.capacity

    cdef int64_t _evict(self, int64_t count, int64_t now_ns) noexcept nogil:
        cdef int32_t element = self.table.chunks[0].next, following
        cdef const Chunk* it
        while count > 0 and element != 0:
            it = &self.table.chunks[element]
            following = it.next
            if it.references == 0 and it.guard <= now_ns:
                self.table.drop(element, 1)
                self.evicted += 1
                count -= 1
            element = following
        return count

    # ---- time

    cdef int advance(self, int64_t until_ns) except -1 nogil:
        self._take_ended(self._writes, until_ns)
        return self._take_ended(self._reads, until_ns)

    cdef int _take_ended(self, Lane lane, int64_t until_ns) except -1 nogil:
        cdef int32_t job = lane.take(until_ns)
        while job >= 0:
            self._end(job)
            job = lane.take(until_ns)
        return 0

    cdef void _end(self, int32_t job) noexcept nogil:
        cdef Job* it = &self.jobs[job]
        cdef Client* client = &self._clients[it.client]
        cdef int32_t i
        for i in range(it.num_chunks):
            if it.way == READ:
                self.table.unpin(it.here[i])
            elif it.is_orphan:
                self.table.discard(it.here[i])
            else:
                self.table.written(it.here[i])
        if it.is_orphan:
            self.give_back(job)
            return
        if it.way == WRITE:
            self.num_writes += 1
            self._written_chunks += it.num_chunks
        else:
            self.num_reads += 1
            self._read_chunks += it.num_chunks
        for i in range(client.underway.size):
            if client.underway.rows[i] == job:
                client.underway.size -= 1
                client.underway.rows[i] = client.underway.rows[client.underway.size]
                break
        if client.last_done >= 0:
            self.jobs[client.last_done].following = job
        else:
            client.first_done = job
        client.last_done = job

    cdef int32_t take_done(self, int32_t client) noexcept nogil:
        cdef Client* it = &self._clients[client]
        cdef int32_t job = it.first_done
        if job >= 0:
            it.first_done = self.jobs[job].following
            if it.first_done < 0:
                it.last_done = -1
        return job

    cdef int64_t next_end_ns(self, int32_t client) noexcept nogil:
        cdef const RowList* underway = &self._clients[client].underway
        cdef int64_t alone_ns[2]
        cdef int32_t i
        cdef const Job* it
        alone_ns[0] = alone_ns[1] = NEVER_NS
        for i in range(underway.size):
            it = &self.jobs[underway.rows[i]]
            alone_ns[it.way] = min(alone_ns[it.way], it.alone_ns)
        return min(max(alone_ns[0], self._writes.next_end_ns()), max(alone_ns[1], self._reads.next_end_ns()))

    cdef int abandon(self, int32_t client) except -1 nogil:
        cdef Client* it = &self._clients[client]
        cdef int32_t i, job = self.take_done(client)
        while job >= 0:
            self.give_back(job)
            job = self.take_done(client)
        for i in range(it.underway.size):
            self.jobs[it.underway.rows[i]].is_orphan = True
            self.num_cancelled += 1
        it.underway.size = 0
        return 0

    cdef void cancel(self, int32_t job) noexcept nogil:
        cdef int32_t i
        for i in range(self.jobs[job].num_chunks):
            self.table.unpin(self.jobs[job].here[i])
        self.num_cancelled += 1
        self.give_back(job)

    # ---- for followers outside the replica

    cdef bint has(self, uint64_t hash) noexcept nogil:
        return self.table.has(hash)

    cdef int settle(self, int64_t now_ns) except -1 nogil:
        return self.advance(now_ns)

    def follow(self):
        """See ChunkStore."""
        return self.table.follow()

    def hashes(self):
        """See ChunkStore."""
        return self.table.hashes()

    # ---- counters

    def row(self):
        """Return the counters, a dict of the fields of `records.KV_TIER`."""
        underway = self.num_started - self.num_writes - self.num_reads - self.num_cancelled
        return {"level": self._settings.level, "capacity_chunks": self.table.capacity, "used_chunks": self.table.size(),
                "stores": self.num_writes, "stored_chunks": self._written_chunks,
                "stored_bytes": self._written_chunks * self._settings.chunk_bytes, "loads": self.num_reads,
                "loaded_chunks": self._read_chunks,
                "loaded_bytes": self._read_chunks * self._settings.chunk_bytes, "evicted_chunks": self.evicted,
                "refusals": self.dropped, "cancelled": self.num_cancelled, "started": self.num_started,
                "underway": underway, "hit_chunks": self._hit_chunks,
                "store_busy_ns": round(self._written_chunks * self._write_ns),
                "load_busy_ns": round(self._read_chunks * self._read_ns)}

    def check(self):
        """Raise RuntimeError unless the table agrees with itself, and jobs in flight are within the count."""
        cdef int32_t i, k
        self.table.check()
        underway = [self._clients[i].underway.rows[k] for i in range(self._num_clients)
                    for k in range(self._clients[i].underway.size)]
        begun = self.num_started - self.num_writes - self.num_reads - self.num_cancelled
        if len(underway) > begun:
            raise RuntimeError(f"{len(underway)} jobs are under way, {begun} were counted")
