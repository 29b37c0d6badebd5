"""The gateway's view of replicas that run: at the instant it looks, or as of the last snapshot.

A snapshot is taken when somebody looks and the last one is as old as the interval, as BLIS does and as a scrape whose
result is cached would; at first all states are empty, taken at time 0.
"""
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.errors cimport out_of_memory
from simulator.core.memory cimport resize
from simulator.domain.request cimport Request
from simulator.engine.replica.observation cimport observe
from simulator.engine.replica.replica cimport Replica
from simulator.kv.cache_log cimport CacheChange, CacheLog
from simulator.kv.prompt_hashes cimport read_hashes
from simulator.signals.holder_sets cimport HolderSets
from simulator.signals.view cimport View


@cython.final
cdef class LiveView(View):
    """A view of `replicas`.

    num_replicas : of them.
    replicas : list of Replica; `account.replica` is set to their indexes.
    shared : build.Shared, what all parts of the cluster share.
    delays_ns : ages up to which a snapshot of what replicas report, and what was seen of their prefix caches, is used
        again; 0: always live.
    """

    def __init__(self, num_replicas, replicas, shared, delays_ns):
        cdef const Request[::1] requests = shared.workload.requests
        cdef Replica replica
        cdef int32_t i, block_size
        cdef int64_t cache_delay_ns
        self._interval_ns, cache_delay_ns = delays_ns
        if len(requests):
            self._requests = &requests[0]
        self._replicas = <void**>calloc(num_replicas, sizeof(void*))
        self._noted = <int32_t*>calloc(num_replicas, sizeof(int32_t))
        self._is_noted = <int8_t*>calloc(num_replicas, sizeof(int8_t))
        if self._replicas == NULL or self._noted == NULL or self._is_noted == NULL:
            raise MemoryError()
        replicas = list(replicas)
        block_size = replicas[0].scheduler.kv.block_size
        self._replica_list, self._owners, self._departures = replicas, shared, shared.departures
        self._log = <void**>calloc(num_replicas, sizeof(void*))
        self._matched = <int32_t*>calloc(num_replicas, sizeof(int32_t))
        if self._log == NULL or self._matched == NULL:
            raise MemoryError()
        self._matched_row = -1
        self._content, self._block_size, self._cache_delay_ns = shared.content, block_size, cache_delay_ns
        for i, replica in enumerate(replicas):
            self._replicas[i] = <void*>replica
            self.accounts[i].replica = replica.index
            observe(replica, 0, &self.states[i])

    def __dealloc__(self):
        free(self._replicas)
        free(self._noted)
        free(self._is_noted)
        free(self._log)
        free(self._matched)
        free(self._hashes)

    cdef int look(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        if self._interval_ns > 0:
            if now_ns - self._taken_ns < self._interval_ns:
                return 0
            self._taken_ns = now_ns
        elif self.wants_levels:
            for i in range(self.num_replicas):      # blocks and tokens grow while a replica runs ahead
                if (<Replica>self._replicas[i]).wake_ns < NEVER_NS:
                    self.note(i)
        elif not self.wants_counts:
            return 0
        for i in range(self._num_noted if self._interval_ns == 0 else self.num_replicas):
            self._read(self._noted[i] if self._interval_ns == 0 else i, now_ns)
        for i in range(self._num_noted):
            self._is_noted[self._noted[i]] = False
        self._num_noted = 0
        return 0

    cdef int _read(self, int32_t replica, int64_t now_ns) except -1 nogil:
        if (<Replica>self._replicas[replica]).is_halted:       # it reports nothing: what was seen last grows old
            return 0
        observe(<Replica>self._replicas[replica],
                self._departures.acted_until_ns(self.accounts[replica].replica, now_ns), &self.states[replica])
        self.states[replica].time_ns = now_ns
        self.mark(replica)
        return 0

    @property
    def replicas(self):
        """The replicas that it shows, in order of their index here."""
        return self._replica_list

    # ---- prefix caches

    def watch_caches(self):
        """Follow the prefix caches from now on, before anything is in them."""
        self._logs = [replica.scheduler.kv.follow() for replica in self._replica_list]
        for i, log in enumerate(self._logs):
            self._log[<int32_t>i] = <void*>log if log is not None else NULL
        self._holders = HolderSets(self.num_replicas)

    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil:
        if self._holders is None:
            return 0
        self._see_caches(now_ns)
        if row != self._matched_row:
            self._match(row)
        return self._matched[replica]

    cdef int _see_caches(self, int64_t now_ns) except -1 nogil:
        """Take in what came and went, unless the last look is recent enough."""
        cdef CacheChange* change
        cdef int32_t i
        cdef int64_t j
        if self._cache_delay_ns > 0 and now_ns - self._caches_seen_ns < self._cache_delay_ns:
            return 0
        if self._is_settled and now_ns == self._caches_seen_ns:     # asked for each replica in turn
            return 0
        self._caches_seen_ns, self._is_settled = now_ns, True
        for i in range(self.num_replicas):
            (<Replica>self._replicas[i]).keep_up(
                self._departures.acted_until_ns(self.accounts[i].replica, now_ns))
            if self._log[i] == NULL or (<CacheLog>self._log[i]).size == 0:
                continue
            if (<CacheLog>self._log[i]).has_lost_some:
                return out_of_memory()
            self._matched_row = -1
            for j in range((<CacheLog>self._log[i]).size):
                change = &(<CacheLog>self._log[i]).changes[j]
                if change.is_there:
                    self._holders.add(change.hash, i)
                else:
                    self._holders.remove(change.hash, i)
            (<CacheLog>self._log[i]).size = 0
        return 0

    cdef int _match(self, int32_t row) except -1 nogil:
        cdef int32_t num_blocks = min(
            self._requests[row].prompt_tokens, self._content.public_tokens(row)) // self._block_size
        if num_blocks > self._room:
            resize(&self._hashes, 2 * num_blocks * sizeof(uint64_t))
            self._room = 2 * num_blocks
        read_hashes(self._content, row, self._block_size, num_blocks, self._hashes)
        self._holders.match(self._hashes, num_blocks, self._matched)
        self._matched_row = row
        return 0
