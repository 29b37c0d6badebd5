"""Host memory of one replica and levels below it, as BLIS models them.

After every iteration the full blocks of running sequences, or of their prompts alone, are in host memory, and from
there each is written to all levels, one job a block and level. Until its jobs are done a block cannot be evicted; if no
block can be evicted, a new one is not kept. Blocks return from host memory at no cost.

A request that needs a block from a level is passed over until the run that begins there has been read into host memory
at once: blocks that follow one another, are neither in the KV cache nor in host memory, and are on the same level, the
nearest that has them. If one of the blocks was never looked up before, the read begins a step later. A run for which
host memory has no room is computed. A running request, which computes its prompt in chunks, has the run fetched and
does not wait. Jobs that ended are noticed when a step begins.

Source: inference-sim (BLIS) at b9628eb5 and 579322f9, sim/kv/offload_chain.go, offload_cputier.go and
offload_deferral.go; equal to runs of f90a1e3a.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.memory cimport resize
from simulator.core.row_list cimport add_row
from simulator.kv.mirror cimport ABSENT, BELOW, COMING, HELD, IS_PUT_OFF, NO_WAIT, WAS_PUT_OFF
from simulator.kv.returning cimport key_of
from simulator.kv.tiers.chunk_table cimport WRITING
from simulator.kv.tiers.station cimport READ, WRITE

from simulator.kv.holdings import Holdings

cdef enum:
    KNOWN = 1 << 20             # of a hash below: beside the bits of levels
    STEP_NS = 1000              # BLIS looks again after this time while nothing runs
cdef int64_t LONGEST_WAIT_NS = 10**12       # then a request computes the blocks that have not arrived


@cython.final
cdef class Written(ChunkStore):
    """Blocks written to the levels; none at first."""

    def __cinit__(self):
        self.levels_of = HashMap()

    cdef bint has(self, uint64_t hash) noexcept nogil:
        cdef int32_t levels = self.levels_of.get(hash)
        return levels > 0 and levels & (KNOWN - 1) != 0

    def hashes(self):
        """See ChunkStore."""
        return {hash for hash in self.levels_of.keys() if self.has(hash)}


@cython.final
cdef class HostChain(Mirror):
    """Host memory and levels of one replica.

    blocks : blocks that fit into host memory.
    levels : protocols.blis_chain.ServedLevel each, the nearest first.
    demands : (n,) records of the workload.
    prompts_only : see Mirror.
    block_bytes : of a block on all accelerators, and on each.
    """

    def __init__(self, int64_t blocks, levels, const Demand[::1] demands, bint prompts_only, double block_bytes,
                 double rank_block_bytes):
        self._table, self.station = ChunkTable(blocks), Station(levels, rank_block_bytes)
        self._written = Written()
        self._below, self._episode_of, self._free = self._written.levels_of, HashMap(), -1
        self._demands, self._owner = &demands[0] if len(demands) else NULL, demands
        self.prompts_only, self.has_levels, self._block_bytes = prompts_only, len(levels) > 0, block_bytes
        self._used = <int64_t*>calloc(max(len(levels), 1), sizeof(int64_t))
        self._refusals = <int64_t*>calloc(max(len(levels), 1), sizeof(int64_t))
        if self._used == NULL or self._refusals == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._room):
            free(self._episodes[i].hashes)
        free(self._episodes)
        free(self._underway.rows)
        free(self._run.hashes)
        free(self._used)
        free(self._refusals)

    # ---- places of blocks

    cdef Place place_of(self, uint64_t hash) noexcept nogil:
        cdef int32_t element = self._table.find(hash)
        if element != 0:
            return COMING if self._table.chunks[element].references == WRITING else HELD
        return BELOW if self._level_of(hash) >= 0 else ABSENT

    cdef int32_t _level_of(self, uint64_t hash) noexcept nogil:
        """Return the nearest level that has a block; -1: there is none."""
        cdef int32_t levels = self._below.get(hash), level
        if levels < 0:
            return -1
        for level in range(self.station.num_levels):
            if levels >> level & 1:
                return level
        return -1

    cdef void reload(self, uint64_t hash) noexcept nogil:
        cdef int32_t element = self._table.find(hash)
        self.reloaded += 1
        if self._table.is_idle(element):
            self._table.move_back(element, 0)

    cdef int keep(self, uint64_t hash) except -1 nogil:
        cdef int32_t element = self._table.find(hash)
        if element != 0:
            if self._table.is_idle(element):
                self._table.move_back(element, 0)
            return 0
        if self._table.size() == self._table.capacity and self._evict(1) == 0:
            self.refused += 1
            return 0
        self._table.prepare(1)
        element = self._table.add(hash, 0, 0)
        self._table.written(element)
        self.kept += 1
        return self._cascade(element, hash)

    cdef int _evict(self, int64_t count) noexcept nogil:
        """Evict up to `count` blocks, those longest idle first; return their number."""
        cdef int64_t gone = min(count, self._table.sizes[0])
        cdef int64_t _
        for _ in range(gone):
            self._table.drop(self._table.chunks[0].next, 1)
        self.evicted += gone
        return gone

    cdef void _unpin(self, int32_t element) noexcept nogil:
        self._table.unpin(element)
        if self._table.is_idle(element):
            self._table.move_back(element, 0)

    # ---- copies to and from the levels

    cdef int _cascade(self, int32_t element, uint64_t hash) except -1 nogil:
        """Write a block to all levels."""
        cdef int32_t level, job
        for level in range(self.station.num_levels):
            job = self.station.open(level, WRITE)
            self.station.add(job, hash)
            self._table.pin(element)
            self._table.move_back(element, 1)
            self.station.submit(job, 1, self._now_ns)
        return 0

    cdef bint _promote(self, const Episode* run) except -1 nogil:
        """Fetch a run as a whole; False: host memory has no room for it."""
        cdef int32_t fresh = 0, i, job
        cdef int64_t lacking
        for i in range(run.count):
            fresh += self._table.find(run.hashes[i]) == 0
        lacking = fresh - (self._table.capacity - self._table.size())
        if fresh == 0 or lacking > self._table.sizes[0]:
            self._refusals[run.level] += 1
            return False
        self._evict(max(lacking, 0))
        self._table.prepare(fresh)
        job = self.station.open(run.level, READ)
        for i in range(run.count):
            self.station.add(job, run.hashes[i])
            if self._table.find(run.hashes[i]) == 0:
                self._table.add(run.hashes[i], 0, 1)
        self.station.submit(job, fresh, self._now_ns)
        return True

    cdef int begins(self, int64_t now_ns) except -1 nogil:
        cdef int32_t job
        self._now_ns, self._is_due = now_ns, False
        self.station.advance(now_ns)
        job = self.station.take_done()
        while job >= 0:
            if self.station.jobs[job].way == READ:
                self._take_read(job)
            else:
                self._take_written(job)
            self.station.give_back(job)
            job = self.station.take_done()
        return 0

    cdef void _take_read(self, int32_t job) noexcept nogil:
        cdef int32_t i, element
        for i in range(self.station.jobs[job].count):
            element = self._table.find(self.station.jobs[job].hashes[i])
            if element != 0 and self._table.chunks[element].references == WRITING:
                self._table.written(element)
                self._table.move_back(element, 0)

    cdef int _take_written(self, int32_t job) except -1 nogil:
        cdef uint64_t hash = self.station.jobs[job].hashes[0]
        cdef int32_t level = self.station.jobs[job].level, levels = max(self._below.get(hash), 0)
        self._below.put(hash, levels | 1 << level)
        self._used[level] += not levels >> level & 1
        if self._written.log is not None:
            self._written.log.note(hash, True)
        self._unpin(self._table.find(hash))
        return 0

    # ---- runs

    cdef int begin_run(self, uint64_t hash) except -1 nogil:
        if self._run.room == 0:
            resize(&self._run.hashes, sizeof(uint64_t))
            self._run.room = 1
        self._run.hashes[0], self._run.count = hash, 1
        self._run.level = -1 if self.place_of(hash) == COMING else self._level_of(hash)
        return 0

    cdef bint extend_run(self, uint64_t hash) except -1 nogil:
        if self._run.level < 0 or self.place_of(hash) != BELOW or self._level_of(hash) != self._run.level:
            return False
        if self._run.count == self._run.room:
            resize(&self._run.hashes, 2 * self._run.room * sizeof(uint64_t))
            self._run.room *= 2
        self._run.hashes[self._run.count] = hash
        self._run.count += 1
        return True

    cdef int fetch(self) except -1 nogil:
        self._promote(&self._run)
        return 0

    cdef Place _place_of_run(self, const Episode* run) noexcept nogil:
        """Return HELD if all blocks of a run are in host memory, ABSENT if one is not even coming, else COMING."""
        cdef Place all_of_it = HELD, where
        cdef int32_t i
        for i in range(run.count):
            where = self.place_of(run.hashes[i])
            if where == COMING:
                all_of_it = COMING
            elif where != HELD:
                return ABSENT
        return all_of_it

    cdef bint _is_known(self, const Episode* run) noexcept nogil:
        cdef int32_t i
        for i in range(run.count):
            if not self._below.get(run.hashes[i]) & KNOWN:
                return False
        return True

    cdef void _make_known(self, const Episode* run) noexcept nogil:
        cdef int32_t i
        for i in range(run.count):
            self._below.replace(run.hashes[i], self._below.get(run.hashes[i]) | KNOWN)

    # ---- requests that wait for a run

    cdef Wait wait_of(self, int32_t row) noexcept nogil:
        cdef int32_t episode = self._episode_of.get(key_of(row)) if self._episode_of.size > 0 else -1
        if episode < 0:
            return NO_WAIT
        return WAS_PUT_OFF if self._episodes[episode].stage == IS_OVER else IS_PUT_OFF

    cdef int put_off(self, int32_t row) except -1 nogil:
        cdef int32_t episode = self._open(row), place
        cdef Episode* it = &self._episodes[episode]
        self._is_due = True
        self.put_offs += 1
        if self._run.level < 0:
            it.stage = FETCHES
        elif self._is_known(it):
            it.stage = FETCHES if self._promote(it) else IS_OVER
        if it.stage == IS_OVER:
            return 0
        add_row(&self._underway, episode)
        place = self._underway.size - 1
        while place > 0 and self._demands[row].tie_rank < self._demands[
                self._episodes[self._underway.rows[place - 1]].row].tie_rank:
            self._underway.rows[place] = self._underway.rows[place - 1]
            place -= 1
        self._underway.rows[place] = episode
        return 0

    cdef int look_again(self) except -1 nogil:
        cdef int32_t left = 0, i
        for i in range(self._underway.size):
            self._go_on(&self._episodes[self._underway.rows[i]])
            if self._episodes[self._underway.rows[i]].stage != IS_OVER:
                self._underway.rows[left] = self._underway.rows[i]
                left += 1
        self._underway.size = left
        return 0

    cdef int _go_on(self, Episode* episode) except -1 nogil:
        cdef Place where = self._place_of_run(episode)
        if episode.stage == LOOKS_UP:
            self._make_known(episode)
            episode.stage = FETCHES
            if where == ABSENT and self._promote(episode):
                where = COMING
        if where != COMING or self._now_ns - episode.since_ns > LONGEST_WAIT_NS:
            episode.stage = IS_OVER
        return 0

    cdef int was_served(self, int32_t row) except -1 nogil:
        return self._close(row)

    cdef int gives_up(self, int32_t row) except -1 nogil:
        return self._close(row)

    cdef int _open(self, int32_t row) except -1 nogil:
        """Begin an episode with the run gathered last."""
        cdef int32_t episode
        cdef Episode* it
        if self._free < 0:
            self._grow()
        episode = self._free
        it = &self._episodes[episode]
        if it.room < self._run.count:
            resize(&it.hashes, self._run.count * sizeof(uint64_t))
            it.room = self._run.count
        self._episode_of.put(key_of(row), episode)
        self._free = it.following
        if self._run.count > 0:
            memcpy(it.hashes, self._run.hashes, self._run.count * sizeof(uint64_t))
        it.count, it.level = self._run.count, self._run.level
        it.row, it.since_ns, it.stage = row, self._now_ns, LOOKS_UP
        return episode

    cdef int _close(self, int32_t row) except -1 nogil:
        cdef int32_t episode = self._episode_of.remove(key_of(row)) if self._episode_of.size > 0 else -1, left = 0, i
        if episode < 0:
            return 0
        self._waited_ns += self._now_ns - self._episodes[episode].since_ns
        if self._episodes[episode].stage != IS_OVER:
            for i in range(self._underway.size):
                if self._underway.rows[i] != episode:
                    self._underway.rows[left] = self._underway.rows[i]
                    left += 1
            self._underway.size = left
        self._episodes[episode].following = self._free
        self._free = episode
        return 0

    cdef int _grow(self) except -1 nogil:
        cdef int32_t before = self._room, after = 2 * self._room + 8, i
        resize(&self._episodes, after * sizeof(Episode))
        memset(self._episodes + before, 0, (after - before) * sizeof(Episode))
        self._room = after
        for i in range(after - 1, before - 1, -1):
            self._episodes[i].following = self._free
            self._free = i
        return 0

    cdef int64_t next_end_ns(self) noexcept nogil:
        cdef int64_t next_ns = self.station.next_end_ns()
        cdef int32_t i
        if self._is_due:
            return self._now_ns + STEP_NS
        if self._underway.size == 0:
            return NEVER_NS
        for i in range(self._underway.size):
            next_ns = min(next_ns, self._episodes[self._underway.rows[i]].since_ns + LONGEST_WAIT_NS + STEP_NS)
        return max(next_ns, self._now_ns + STEP_NS)

    cdef int fail(self) except -1 nogil:
        cdef int32_t i
        self.station.cancel_all()
        self._underway.size = 0
        self._is_due = False
        self._episode_of.clear()
        self._free = -1
        for i in range(self._room - 1, -1, -1):
            self._episodes[i].following = self._free
            self._free = i
        with gil:
            self._table.clear()
        return 0

    def holdings(self):
        """See KVTier."""
        return Holdings(self.block_size, self.block_size, (self._table,), (self._written,) * self.has_levels)

    # ---- counters

    def rows(self):
        """See KVTier."""
        cdef int32_t level
        found = [{"capacity_chunks": self._table.capacity, "used_chunks": self._table.size(), "stores": self.kept,
                  "stored_chunks": self.kept, "loads": self.reloaded, "loaded_chunks": self.reloaded,
                  "evicted_chunks": self.evicted, "refusals": self.refused,
                  "started": self.kept + self.reloaded, "hit_chunks": self.reloaded, "waited_ns": self._waited_ns}]
        for level in range(self.station.num_levels):
            found.append({"level": level + 1, "used_chunks": self._used[level],
                          "refusals": self._refusals[level]} | self.station.row(level))
        for row in found:
            row["stored_bytes"] = row["stored_chunks"] * self._block_bytes
            row["loaded_bytes"] = row["loaded_chunks"] * self._block_bytes
        return found

    def check(self):
        """Raise RuntimeError unless tables, jobs and episodes agree."""
        cdef int32_t i
        self._table.check()
        self.station.check()
        if any(references != 0 for *_, references in self._table.entries(0)):
            raise RuntimeError("a block that is read or written is among those that can go")
        if any(references == 0 for *_, references in self._table.entries(1)):
            raise RuntimeError("an idle block is not among those that can go")
        for i in range(self._underway.size):
            if self.wait_of(self._episodes[self._underway.rows[i]].row) != IS_PUT_OFF:
                raise RuntimeError(f"episode {self._underway.rows[i]} goes on and is over")
