"""Host memory of a replica: base of the tiers that keep chunks of KV there."""
from simulator.kv.tiers.copies cimport LOAD, STORE, Copy
from simulator.kv.tiers.lane cimport Lane

from simulator.kv.tiers.settings import Offloading


cdef class HostTier(KVTier):
    """Base of tiers with host memory.

    settings : Offloading.
    store, load, step : Lane of each direction, and of loads that their step waits for; None: there are none.
    """

    def __init__(self, settings: Offloading, Lane store, Lane load, Lane step=None):
        self.copies = self.puts_off_frees = True
        self._settings, self._prompt_only = settings, settings.offload_prompt_only
        self._threshold = settings.store_threshold
        self.copying = Copies(store, load, step)

    def attach(self, KVCache kv, Content content, use=None, with_tables=False):
        """See KVTier."""
        cdef TierUse[::1] of_requests
        self.kv, self._content, self._use_owner = kv, content, use
        if use is not None and len(use):
            of_requests = use
            self._use = &of_requests[0]
        self.table = ChunkTable(self._settings.chunks, with_tables)
        self.policy = self._settings.policy(self.table)
        kv.put_fences()

    def keep_log(self):
        """See KVTier; needs `attach` with `with_tables`."""
        self.policy.keep_log()
        self.copying.keep_log()
        self._log = {"stores": [], "loads": []}

    cdef bint _make_room(self, int64_t count) except -1 nogil:
        cdef int64_t lacking = count - (self.table.capacity - self.table.size())
        if lacking <= 0:
            return True
        if lacking > self.table.num_idle - self._num_guarded:
            self.refusals += 1
            if self._log is not None and lacking <= self.table.num_idle:
                self._note_refusal()
            return False
        self.evictions += lacking
        self.policy.evict(lacking, self._guard)
        return True

    cdef void _count(self, int32_t copy, int32_t row, int64_t tokens) noexcept nogil:
        cdef const Copy* it = &self.copying.copies[copy]
        cdef int32_t chunks = 0, i
        for i in range(it.num_chunks):
            chunks += self.table.length(it.chunks[i])
        if it.direction == STORE:
            self._stores += 1
            self._stored_chunks += chunks
            self._stored_blocks += it.num_blocks
        else:
            self._loads += 1
            self._loaded_chunks += chunks
            self._loaded_blocks += it.num_blocks
        if self._use != NULL and it.direction == STORE:
            self._use[row].stored_tokens += <int32_t>tokens
        elif self._use != NULL:
            self._use[row].loaded_tokens += <int32_t>tokens

    def rows(self):
        """See KVTier."""
        stores, loads = self._stores, self._loads
        return [{
            "capacity_chunks": self.table.capacity, "used_chunks": self.table.size(),
            "stores": stores, "stored_chunks": self._stored_chunks,
            "stored_bytes": self._stored_blocks * self._settings.block_bytes, "loads": loads,
            "loaded_chunks": self._loaded_chunks,
            "loaded_bytes": self._loaded_blocks * self._settings.block_bytes, "evicted_chunks": self.evictions,
            "refusals": self.refusals, "flushed": self.copying.num_flushed, "waited_ns": self.copying.waited_ns,
            "cancelled": self.copying.num_cancelled, "started": self.copying.num_planned,
            "underway": self.copying.num_underway(), "hit_chunks": self._hit_chunks,
            "store_busy_ns": round(self.copying.busy_ns(STORE, stores, self._stored_blocks)),
            "load_busy_ns": round(self.copying.busy_ns(LOAD, loads, self._loaded_blocks))}]

    # ---- steps

    cdef int64_t launch(self, int64_t now_ns, int64_t free_ns) except -1 nogil:
        return self.copying.launch(now_ns, free_ns)

    cdef int64_t begin_loads(self, int64_t launch_ns, int64_t end_ns) except -1 nogil:
        return self.copying.begin_loads(launch_ns, end_ns)

    cdef int64_t next_end_ns(self) noexcept nogil:
        return self.copying.next_end_ns()

    cdef bint is_quiet(self) noexcept nogil:
        return self.copying.is_quiet() and self.kv.fences.size == 0

    cdef int catch_up(self, const int64_t* ends_ns, int32_t count, int32_t behind, int64_t* num_done) except -1 nogil:
        cdef int32_t i = 0
        while i < count:
            if self.copying.is_quiet():                 # all that was done is reported: no step acts
                while i < count and ends_ns[i] < self.copying.next_end_ns():
                    i += 1
                if i == count:
                    break
            self.take_loaded(num_done[0])
            num_done[0] = num_done[behind]
            self.copying.launch(ends_ns[i], ends_ns[i + behind])
            num_done[behind] = self.copying.begin_loads(ends_ns[i], ends_ns[i + behind])
            i += 1
        return 0

    # ---- the debug face

    cdef int _note_refusal(self) except -1 nogil:
        with gil:
            self.policy.refused()
        return 0

    def take_log(self):
        """Return the log of the step formed last, and the state of the table.

        A dict: `stores` and `loads`, a tuple for each copy; `flushed`, `done`: numbers of copies; `evicted`: slots, see
        EvictionPolicy.take_log; `counts`: chunks that are present, idle, being written; `order`: see
        EvictionPolicy.order.
        """
        log, self._log = self._log, {"stores": [], "loads": []}
        return log | self.copying.take_log() | {
            "evicted": self.policy.take_log(), "order": self.policy.order(),
            "counts": [self.table.size(), self.table.num_idle, self.table.num_writing]}

    def check(self):
        """Raise RuntimeError unless the table agrees with itself."""
        self.table.check()
