"""Host memory of a replica of SGLang with HiCache: the timing of copies that the tree requests.

Source: sglang 0.5.23, managers/cache_controller.py (start_writing, start_loading), managers/scheduler.py
(get_next_batch_to_run, process_batch_result) and mem_cache/unified_radix_cache.py (check_hicache_events). Its rules:

- Copies to host memory requested since the last pass of the scheduler go as one copy, once the batch that executes when
  the next is formed has ended; one copy after the other.
- With write_back each evicted node is a copy, and the scheduler waits for it before it launches its batch.
- Loads for the requests of a batch are one copy. It begins with the batch; each layer of the batch waits for its part.
- A pass notices the copies that have ended by then, and unlocks their nodes.

A batch that computes for C and loads for L with n layers takes longer by L / n + max(0, L - C) (1 - 1 / n): its first
layer waits for one layer's part, the others for the part of the load that earlier layers' computation does not hide.
SGLang has no formula of its own for that; no run with HiCache was recorded.

Not as in SGLang: where batches overlap and a pass waits for copies of write_back, the tokens of the batch before are
observed when that ends, and the next pass begins then, not after the copies.
"""
from libc.stdlib cimport free
from libc.string cimport memmove
cimport cython

from simulator.core.arithmetic cimport round_half_up
from simulator.core.memory cimport resize
from simulator.core.row_list cimport add_row
from simulator.kv.base cimport KVCache

import msgspec

from simulator.kv.radix_host import HostSettings
from simulator.kv.tiers.hicache_store import HicacheStore
from simulator.kv.tiers.level import Level


class HicacheSettings(msgspec.Struct, frozen=True):
    """Settings of the tier.

    host : HostSettings.
    page_bytes : bytes of a page, on all accelerators together.
    layers : layers of the model.
    level : LevelSettings of the store below; None: there is none.
    prefetch_policy : wait_complete, best_effort or timeout.
    prefetch_threshold : tokens; fewer are not prefetched.
    timeout_base_s, timeout_per_ki_token_s : longest wait of a request for a prefetch; the latter per 1,024 tokens.
    """

    host: HostSettings
    page_bytes: float
    layers: int = 1
    level: object = None
    prefetch_policy: str = "wait_complete"
    prefetch_threshold: int = 256
    timeout_base_s: float = 1.0
    timeout_per_ki_token_s: float = 0.25


cdef int32_t take_first(RowList* counts) noexcept nogil:
    cdef int32_t count = counts.rows[0]
    counts.size -= 1
    memmove(counts.rows, &counts.rows[1], counts.size * sizeof(int32_t))
    return count


@cython.final
cdef class HicacheTier(KVTier):
    """Host memory of one replica, and the store below it.

    settings : HicacheSettings.
    store, load : Lane of each direction, one copy after the other.
    """

    def __init__(self, settings: HicacheSettings, Lane store, Lane load):
        self.copies = self.stays = True
        self._settings, self._store_lane, self._load_lane = settings, store, load
        self._layers, self._writes_back = settings.layers, settings.host.write_policy == "write_back"
        self._levels = [Level(settings.level)] if settings.level and settings.level.scope == "replica" else []
        self.has_store, self._loaded_row = settings.level is not None, -1

    def __dealloc__(self):
        free(self._writing)
        free(self._loading)
        free(self.entered.rows)
        free(self._write_counts.rows)
        free(self._load_counts.rows)

    @property
    def host(self):
        """HostSettings, for the tree."""
        return self._settings.host

    def share(self, stores):
        """See KVTier."""
        level = self._settings.level
        if level and level.scope == "cluster":
            self._levels = [stores.get(level.name) or Level(level)]
            stores[level.name] = self._levels[0]

    def attach(self, KVCache kv, Content content, use=None, with_tables=False):
        """See KVTier; `kv` is a RadixKV with a HostTree."""
        cdef TierUse[::1] of_requests
        self._kv, self._use_owner, self._page = kv, use, kv.block_size
        self._tree = self._kv.tree
        if use is not None and len(use):
            of_requests = use
            self._use = &of_requests[0]
        if self._levels:
            self.store = HicacheStore(self._tree, content, self._levels[0], self._settings)

    def share_content(self, content):
        """See KVCache."""
        if self.store is not None:
            self.store.share_content(content)

    # ---- a pass

    cdef int take_notice(self, int64_t now_ns) except -1 nogil:
        self._num_due = self._tree.num_backups
        self._take_written(now_ns)
        self._take_loaded(now_ns)
        if self.store is not None:
            self.store.write(now_ns)
            self.store.notice(now_ns)
        self._kv.count()
        return 0

    cdef int64_t launch(self, int64_t now_ns, int64_t free_ns) except -1 nogil:
        cdef int64_t launch_ns = now_ns
        self._has_waited = False
        self._loaded_ns = 0
        if self._writes_back and self._tree.num_backups > 0:
            launch_ns = self._write_back(now_ns, max(now_ns, free_ns))
        elif self._num_due > 0:
            self._begin_writing(max(now_ns, free_ns))
        if self._tree.num_loadings > 0:
            self._begin_loading(max(launch_ns, free_ns))
        return launch_ns

    cdef int64_t _write_back(self, int64_t now_ns, int64_t free_ns) except -1 nogil:
        """Copy evicted nodes, one after the other; return when the last copy has ended."""
        cdef int64_t at_ns = free_ns
        cdef const Backup* it
        cdef int32_t i
        for i in range(self._tree.num_backups):
            it = &self._tree.backups[i]
            self._store_lane.begin(0, it.tokens // self._page, at_ns)
            at_ns = self._store_lane.end_ns(0)
            self._store_lane.take(at_ns)
            self._started += 1
            self._store_copies += 1
            self._count_written(it)
        self._tree.num_backups = 0
        self._has_waited = True
        self._waited_ns += at_ns - free_ns
        return at_ns

    cdef int _begin_writing(self, int64_t now_ns) except -1 nogil:
        cdef int32_t count = self._num_due, i
        cdef int64_t tokens = 0
        if self._num_writing + count > self._writing_room:
            self._writing_room = 2 * (self._num_writing + count)
            resize(&self._writing, <size_t>self._writing_room * sizeof(Backup))
        for i in range(count):
            self._writing[self._num_writing + i] = self._tree.backups[i]
            tokens += self._tree.backups[i].tokens
        self._num_writing += count
        self._tree.num_backups -= count
        memmove(self._tree.backups, &self._tree.backups[count], self._tree.num_backups * sizeof(Backup))
        self._num_due = 0
        self._started += 1
        add_row(&self._write_counts, count)
        return self._store_lane.begin(<int32_t>self._started, tokens // self._page, now_ns)

    cdef int _begin_loading(self, int64_t now_ns) except -1 nogil:
        cdef int32_t count = self._tree.num_loadings, i
        cdef int64_t tokens = 0
        if self._num_loading + count > self._loading_room:
            self._loading_room = 2 * (self._num_loading + count)
            resize(&self._loading, <size_t>self._loading_room * sizeof(Loading))
        for i in range(count):
            self._loading[self._num_loading + i] = self._tree.loadings[i]
            tokens += self._tree.loadings[i].tokens
        self._num_loading += count
        self._tree.num_loadings = 0
        self._started += 1
        add_row(&self._load_counts, count)
        self._load_lane.begin(<int32_t>self._started, tokens // self._page, now_ns)
        self._loaded_ns = self._load_lane.end_ns(<int32_t>self._started)
        return 0

    cdef int _take_written(self, int64_t now_ns) except -1 nogil:
        cdef int32_t count, i
        while self._store_lane.take(now_ns) >= 0:
            count = take_first(&self._write_counts)
            for i in range(count):
                self._tree.finish_backup(&self._writing[i])
                self._count_written(&self._writing[i])
            self._num_writing -= count
            memmove(self._writing, &self._writing[count], self._num_writing * sizeof(Backup))
            self._store_copies += 1
        return 0

    cdef void _count_written(self, const Backup* backup) noexcept nogil:
        self._num_stores += 1
        self._stored += backup.tokens
        if self._use != NULL:
            self._use[backup.row].stored_tokens += backup.tokens

    cdef int _take_loaded(self, int64_t now_ns) except -1 nogil:
        cdef int32_t count, i
        while self._load_lane.take(now_ns) >= 0:
            count = take_first(&self._load_counts)
            for i in range(count):
                self._tree.finish_load(&self._loading[i])
                self._num_loads += 1
                self._loaded += self._loading[i].tokens
                if self._use != NULL:
                    self._use[self._loading[i].row].loaded_tokens += self._loading[i].tokens
            self._num_loading -= count
            memmove(self._loading, &self._loading[count], self._num_loading * sizeof(Loading))
            self._load_copies += 1
        return 0

    cdef int64_t stays_ns(self, int64_t start_ns, int64_t executes_ns) noexcept nogil:
        cdef int64_t loads_ns = max(self._loaded_ns - start_ns, <int64_t>0)
        if loads_ns == 0:
            return 0
        return round_half_up(<double>loads_ns / self._layers + <double>max(loads_ns - executes_ns, <int64_t>0) * (
            1.0 - 1.0 / self._layers))

    # ---- the interface of any tier

    cdef void begins_with(self, int32_t row, int64_t tokens) noexcept nogil:
        self._loaded_row, self._loaded_tokens = row, tokens
        self._hits += tokens

    cdef int64_t loaded_tokens(self, int32_t row) noexcept nogil:
        return self._loaded_tokens if row == self._loaded_row else 0

    cdef int gives_up(self, int32_t row) except -1 nogil:
        cdef int32_t i, kept = 0
        for i in range(self.entered.size):
            if self.entered.rows[i] != row:
                self.entered.rows[kept] = self.entered.rows[i]
                kept += 1
        self.entered.size = kept
        return self.store.forget(row) if self.store is not None else 0

    cdef bint has_acted(self) noexcept nogil:
        return self._has_waited

    cdef int64_t next_end_ns(self) noexcept nogil:
        cdef int64_t end_ns = min(self._store_lane.next_end_ns(), self._load_lane.next_end_ns())
        return min(end_ns, self.store.next_ns()) if self.store is not None else end_ns

    cdef bint is_quiet(self) noexcept nogil:
        # A pass that evicts waits for the copies of write_back.
        return not self._writes_back and self._tree.num_backups == 0

    cdef int fail(self) except -1 nogil:
        cdef int32_t i
        self.entered.size = 0
        if self.store is not None:
            self.store.fail()
        self._cancelled = self._started - self._store_copies - self._load_copies
        self._store_lane.clear()
        self._load_lane.clear()
        for i in range(self._num_writing):
            self._tree.cancel_backup(&self._writing[i])
        for i in range(self._tree.num_backups if not self._writes_back else 0):
            self._tree.cancel_backup(&self._tree.backups[i])
        for i in range(self._num_loading):
            self._tree.finish_load(&self._loading[i])
        for i in range(self._tree.num_loadings):
            self._tree.finish_load(&self._tree.loadings[i])
        self._write_counts.size = self._load_counts.size = 0
        self._num_writing = self._num_loading = self._tree.num_backups = self._tree.num_loadings = self._num_due = 0
        return 0

    # ---- counters

    def rows(self):
        """See KVTier; a chunk is a page."""
        page_bytes, stored, loaded = self._settings.page_bytes, self._stored // self._page, self._loaded // self._page
        host = {
            "capacity_chunks": self._tree.capacity // self._page,
            "used_chunks": (self._tree.capacity - self._tree.host_free) // self._page,
            "stores": self._store_copies, "stored_chunks": stored, "stored_bytes": stored * page_bytes,
            "loads": self._load_copies, "loaded_chunks": loaded, "loaded_bytes": loaded * page_bytes,
            "evicted_chunks": self._tree.host_evicted // self._page,
            "refusals": self._tree.num_refused + (self.store.refusals if self.store is not None else 0),
            "flushed": self._store_copies if self._writes_back else 0, "waited_ns": self._waited_ns,
            "cancelled": self._cancelled, "started": self._started,
            "underway": self._started - self._store_copies - self._load_copies - self._cancelled,
            "hit_chunks": self._hits // self._page,
            "store_busy_ns": round(self._store_lane.busy_ns(self._store_copies, stored)),
            "load_busy_ns": round(self._load_lane.busy_ns(self._load_copies, loaded))}
        return [host, *(level.row() for level in self._levels if level.settings.scope == "replica")]

    @property
    def num_locked(self):
        """Paths of the tree that it locks: copied, or about to be."""
        return self._num_writing + self._num_loading + self._tree.num_backups + self._tree.num_loadings

    def check(self):
        """Raise RuntimeError unless the tree agrees with itself, and the store with its part of host memory."""
        self._tree.check()
        if self.store is not None:
            self.store.check()
