"""The store below the host memory of SGLang's HiCache.

Source: sglang 0.5.23, mem_cache/unified_radix_cache.py (prefetch_from_storage, check_prefetch_progress,
_handle_prefetch_result, _drain_storage_control_queues_impl, write_backup_storage), managers/cache_controller.py
(_storage_hit_query, _page_transfer, _page_backup, prefetch_rate_limited; batches of STORAGE_BATCH_SIZE pages) and
managers/scheduler.py (_prefetch_kvcache). Its rules:

- A prefetch covers the tokens of a text that host memory lacks, without the last token, if these are at least
  `threshold` tokens and earlier prefetches cover less than half of host memory. The pages that the store has, up to the
  first that it lacks, are looked up at once and noticed in the next pass; fewer tokens are not fetched.
- A prefetch gets room in host memory for all its pages, or for as many as fit, if that is at least `threshold` tokens.
- Prefetches are read one after the other, in batches of 128 pages; a complete one enters the tree, in host memory.
- With best_effort a waiting request continues, when it could be admitted, with the batches read so far. With timeout it
  does so after base + a time per requested page, from the first pass that could have admitted it. With wait_complete
  it waits for the whole prefetch. A batch that is then in flight still occupies its room until it ends.
- A node that has been copied to host memory is written to the store, batch by batch, one node after the other, and is
  locked in host memory until that has ended.

Not as in SGLang: a prefetch that found nothing is not requested again (there: up to 8 times, each 8 passes); in a store
that replicas share, the batches of a prefetch are one read, so a request that stops waiting gets none of its pages, and
reads and writes of one replica run side by side; a lookup takes no time.
"""
from libc.stdlib cimport free
from libc.string cimport memmove, memset
cimport cython

from simulator.core.memory cimport resize
from simulator.kv.content cimport Cursor
from simulator.kv.tiers.level cimport READ, Job

cdef enum:
    BATCH_PAGES = 128           # STORAGE_BATCH_SIZE
    WAIT_COMPLETE = 0
    BEST_EFFORT = 1
    TIMEOUT = 2

POLICIES = ("wait_complete", "best_effort", "timeout")


@cython.final
cdef class HicacheStore:
    """Prefetches and writes of one replica at its store.

    tree, content : of the replica.
    level : Level; the replica's own, or shared.
    settings : HicacheSettings.
    """

    def __init__(self, HostTree tree, Content content, Level level, settings):
        self._tree, self._content, self.level = tree, content, level
        self._client = level.join()
        self._is_shared = level.settings.scope == "cluster"
        self._page = tree.page_size
        self._policy = POLICIES.index(settings.prefetch_policy)
        self._threshold = max(settings.prefetch_threshold, tree.page_size)
        self._base_ns = settings.timeout_base_s * 1e9
        self._page_ns = settings.timeout_per_ki_token_s * 1e9 / 1024 * tree.page_size

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._num_fetches):
            free(self._fetches[i].hashes)
        free(self._fetches)
        free(self._held)
        free(self._hashes)
        free(self._there)

    def share_content(self, Content content):
        """See KVCache."""
        self._content = content

    # ---- prefetches

    cdef int32_t _fetch_of(self, int32_t row) noexcept nogil:
        """Return the prefetch that a request may wait for; -1: there is none."""
        cdef int32_t i
        for i in range(self._num_fetches):
            if self._fetches[i].row == row and self._fetches[i].stage != STOPPED:
                return i
        return -1

    cdef int32_t _hash(self, int32_t row, int64_t begin, int64_t end) except -1 nogil:
        """Write the hashes of the pages of tokens begin .. end - 1 to `_hashes`; return their number."""
        cdef int32_t count = <int32_t>((end - begin) // self._page), i, _
        cdef Cursor cursor
        if self._hash_room < count:
            resize(&self._hashes, 2 * <size_t>count * sizeof(uint64_t))
            resize(&self._there, 2 * <size_t>count * sizeof(int32_t))
            self._hash_room = 2 * count
        memset(&cursor, 0, sizeof(Cursor))
        for _ in range(<int32_t>(begin // self._page)):
            self._content.advance(row, <int32_t>self._page, &cursor)
        for i in range(count):
            self._hashes[i] = self._content.advance(row, <int32_t>self._page, &cursor)
        return count

    cdef int ask(self, int32_t row, int32_t node, int64_t begin, int64_t end) except -1 nogil:
        cdef int64_t asked = max((end - begin) // self._page * self._page, <int64_t>0)
        cdef int32_t i
        cdef Fetch* it
        if asked < self._threshold or self._fetch_of(row) >= 0 or (
                node > 0 and not self._tree.is_on_host(node)):
            return 0
        if self._occupied >= self._tree.capacity // 2:
            self.refusals += 1
            return 0
        if self._num_fetches == self._room:
            resize(&self._fetches, (2 * <size_t>self._room + 8) * sizeof(Fetch))
            self._room = 2 * self._room + 8
        it = &self._fetches[self._num_fetches]
        memset(it, 0, sizeof(Fetch))
        it.row, it.node, it.begin, it.asked, it.job, it.deadline_ns, it.stage = row, node, begin, asked, -1, -1, ASKED
        it.num_pages = self._hash(row, begin, begin + asked)
        for i in range(it.num_pages):
            if self.level.find(self._hashes[i]) == 0:
                it.num_pages = i
                break
        if it.num_pages > 0:
            resize(&it.hashes, <size_t>it.num_pages * sizeof(uint64_t))
        for i in range(it.num_pages):
            it.hashes[i] = self._hashes[i]
        it.lock = self._tree.lock_host(node)
        self._num_fetches += 1
        self._occupied += asked
        self._is_asked = True
        return 0

    cdef bint may_go(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t fetch = self._fetch_of(row)
        cdef Fetch* it
        if fetch < 0:
            return True
        it = &self._fetches[fetch]
        if self._policy == WAIT_COMPLETE:
            return False
        if self._policy == TIMEOUT:
            if it.deadline_ns < 0:
                it.deadline_ns = now_ns + <int64_t>(self._base_ns + self._page_ns * <double>(it.asked // self._page))
            if now_ns < it.deadline_ns:
                return False
        self._insert(fetch)
        return True

    cdef int forget(self, int32_t row) except -1 nogil:
        cdef int32_t fetch = self._fetch_of(row)
        if fetch >= 0:
            self._fetches[fetch].completed = 0
            self._insert(fetch)
        return 0

    cdef int _insert(self, int32_t fetch) except -1 nogil:
        """Put the pages read so far into the tree; the request does not wait for the prefetch any more."""
        cdef Fetch* it = &self._fetches[fetch]
        if it.completed > 0:
            self._tree.host_free += self._tree.insert_host(it.node, it.row, it.begin, it.begin + it.completed)
            self._tree.host_lent -= it.completed
        it.room -= it.completed
        self._tree.unlock_host(it.node, it.lock)
        self._occupied -= it.asked
        if it.stage == READING:
            it.stage = STOPPED
        else:
            self._end(fetch)
        return 0

    cdef void _end(self, int32_t fetch) noexcept nogil:
        """Give up the rest of a prefetch's room, and the prefetch."""
        self._tree.host_free += self._fetches[fetch].room
        self._tree.host_lent -= self._fetches[fetch].room
        free(self._fetches[fetch].hashes)
        self._num_fetches -= 1
        memmove(&self._fetches[fetch], &self._fetches[fetch + 1], (self._num_fetches - fetch) * sizeof(Fetch))

    # ---- a pass

    cdef int notice(self, int64_t now_ns) except -1 nogil:
        cdef int64_t end_ns = self.level.next_end_ns(self._client)
        cdef int32_t i = 0
        while end_ns <= now_ns and not self._is_shared:
            self.level.advance(end_ns)
            self._take_done()
            self._begin_next(end_ns)
            end_ns = self.level.next_end_ns(self._client)
        self.level.advance(now_ns)
        self._take_done()
        while self._is_asked and i < self._num_fetches:
            if self._fetches[i].stage != ASKED or self._give_room(i):
                i += 1
        self._is_asked = False
        self._begin_next(now_ns)
        i = 0
        while i < self._num_fetches:
            if self._fetches[i].stage == COMPLETE:
                self._insert(i)
            elif self._fetches[i].stage == STOPPED and self._fetches[i].job < 0:
                self._end(i)
            else:
                i += 1
        for i in range(self._num_held):
            if self._held[i].num_jobs == 0 and self._held[i].lock != 0:
                self._tree.unlock_host(self._held[i].node, self._held[i].lock)
                self._held[i].lock = 0
        return 0

    cdef bint _give_room(self, int32_t fetch) except -1 nogil:
        """Find room for the pages that the store has; False: there is too little, and the prefetch is over."""
        cdef Fetch* it = &self._fetches[fetch]
        cdef int64_t hits = it.num_pages * self._page
        if hits >= self._threshold and self._tree.host_free < hits:
            self._tree.evict_host(hits)
            hits = min(hits, self._tree.host_free // self._page * self._page)
            self.refusals += hits < self._threshold
        if hits < self._threshold:
            self._insert(fetch)
            return False
        it.num_pages, it.room, it.stage = <int32_t>(hits // self._page), hits, QUEUED
        self._tree.host_free -= hits
        self._tree.host_lent += hits
        return True

    cdef int _begin_next(self, int64_t now_ns) except -1 nogil:
        """Begin the next batch; in a shared store all prefetches that have room."""
        cdef int32_t i
        for i in range(self._num_fetches):
            if self._fetches[i].job >= 0 and not self._is_shared:
                return 0
        for i in range(self._num_fetches):
            if self._fetches[i].stage == READING and self._fetches[i].job < 0:
                self._begin(&self._fetches[i], now_ns)
            elif self._fetches[i].stage == QUEUED:
                self._fetches[i].stage = READING
                self._begin(&self._fetches[i], now_ns)
            if self._fetches[i].job >= 0 and not self._is_shared:
                return 0
        return 0

    cdef int _begin(self, Fetch* it, int64_t now_ns) except -1 nogil:
        """Begin the next batch of a prefetch, up to the first page that the store has lost."""
        cdef int32_t first = <int32_t>(it.completed // self._page), last = it.num_pages, i, element
        if not self._is_shared:
            last = min(last, first + BATCH_PAGES)
        for i in range(first, last):
            element = self.level.find(it.hashes[i])
            if element == 0:
                it.num_pages = i
                break
            if it.job < 0:
                it.job = self.level.open(self._client, READ)
            self.level.read(it.job, element, 0)
        if it.job < 0:
            it.stage = COMPLETE
            return 0
        it.underway = self.level.jobs[it.job].num_chunks
        return self.level.begin(it.job, now_ns)

    cdef int _take_done(self) except -1 nogil:
        cdef int32_t job = self.level.take_done(self._client)
        cdef const Job* it
        while job >= 0:
            it = &self.level.jobs[job]
            if it.way == READ:
                self._take_read(job, it.num_chunks)
            else:
                self._held[it.there[0]].num_jobs -= 1
            self.level.give_back(job)
            job = self.level.take_done(self._client)
        return 0

    cdef void _take_read(self, int32_t job, int32_t num_pages) noexcept nogil:
        cdef int32_t i = 0
        cdef Fetch* it
        while self._fetches[i].job != job:
            i += 1
        it = &self._fetches[i]
        it.job = -1
        if it.stage == READING:
            it.completed += num_pages * self._page
            if it.completed == it.num_pages * self._page:
                it.stage = COMPLETE

    # ---- writes

    cdef int write(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        for i in range(self._tree.num_extents):
            self._write_extent(&self._tree.extents[i], now_ns)
        self._tree.num_extents = 0
        return 0

    cdef int _write_extent(self, const Extent* extent, int64_t now_ns) except -1 nogil:
        cdef int32_t count = self._hash(extent.row, extent.begin, extent.end), held = self._hold(extent), i, first = 0
        cdef int32_t most = count if self._is_shared else BATCH_PAGES
        for i in range(count):
            self._there[i] = held
        while first < count:
            self._held[held].num_jobs += self.level.write(
                self._client, self._hashes + first, self._there + first, min(most, count - first), now_ns) >= 0
            first += most
        return 0

    cdef int32_t _hold(self, const Extent* extent) except -1 nogil:
        cdef int32_t i = 0
        while i < self._num_held and (self._held[i].num_jobs > 0 or self._held[i].lock != 0):
            i += 1
        if i == self._num_held:
            resize(&self._held, (i + 1) * sizeof(Held))
            self._num_held += 1
        self._held[i].node, self._held[i].lock, self._held[i].num_jobs = extent.node, extent.lock, 0
        return i

    # ---- questions

    cdef int64_t next_ns(self) noexcept nogil:
        cdef int64_t first_ns = self.level.next_end_ns(self._client)
        cdef int32_t i
        for i in range(self._num_fetches):
            if self._fetches[i].stage == COMPLETE or (self._is_asked and self._fetches[i].stage == ASKED):
                return 0                        # the next pass handles it
            if self._fetches[i].deadline_ns >= 0 and self._fetches[i].stage != STOPPED:
                first_ns = min(first_ns, self._fetches[i].deadline_ns)
        return first_ns

    cdef int fail(self) except -1 nogil:
        cdef int32_t i
        while self._num_fetches > 0:
            if self._fetches[0].stage != STOPPED:
                self._tree.unlock_host(self._fetches[0].node, self._fetches[0].lock)
            self._end(0)
        for i in range(self._num_held):
            self._tree.unlock_host(self._held[i].node, self._held[i].lock)
        for i in range(self._tree.num_extents):
            self._tree.unlock_host(self._tree.extents[i].node, self._tree.extents[i].lock)
        self._num_held = self._tree.num_extents = 0
        self._occupied, self._is_asked = 0, False
        return self.level.abandon(self._client)

    def check(self):
        """Raise RuntimeError unless the level agrees with itself, and the count of lent host memory with the rooms."""
        cdef int32_t i
        self.level.check()
        rooms = sum(self._fetches[i].room for i in range(self._num_fetches))
        if rooms != self._tree.host_lent:
            raise RuntimeError(f"prefetches have {rooms} tokens of host memory, {self._tree.host_lent} are counted")
