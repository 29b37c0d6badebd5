"""Prefix cache hits of a prompt at running replicas: an index from block hashes to replicas."""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.core.debug cimport SIM_DEBUG
from simulator.core.errors cimport broken, out_of_memory
from simulator.core.memory cimport resize
from simulator.engine.replica.observation cimport next_cache_change_ns
from simulator.engine.replica.replica cimport Replica
from simulator.kv.cache_log cimport CacheLog
from simulator.kv.prompt_hashes cimport read_hashes
from simulator.signals.holder_sets cimport HolderSets

from math import gcd


cdef inline int note_holder(HolderSets holders, CacheLog log, int32_t replica) except -1 nogil:
    """Apply the logged additions and removals of a replica's cache to the index."""
    cdef int64_t i
    if log.has_lost_some:
        return out_of_memory()
    for i in range(log.size):
        if log.changes[i].is_there:
            holders.add(log.changes[i].hash, replica)
        else:
            holders.remove(log.changes[i].hash, replica)
    log.size = 0
    return 0


@cython.final
cdef class LiveCaches:
    """The prefix caches of `replicas`, followed while still empty.

    replicas : list of Replica.
    shared : build.Shared, the objects shared by all parts of the cluster.
    delay_ns : age up to which the last reading is used again; 0: always live.
    """

    def __init__(self, replicas, shared, int64_t delay_ns):
        cdef const Request[::1] requests = shared.workload.requests
        cdef Replica replica
        cdef int32_t i
        self.num_replicas, self._replica_list = len(replicas), replicas
        self._owners, self._departures, self._content = shared, shared.departures, shared.content
        self._delay_ns, self._row = delay_ns, -1
        if len(requests):
            self._requests = &requests[0]
        self.outdated = Outdated(self.num_replicas)
        self._logs = [replica.scheduler.kv.follow() for replica in replicas]
        self._replicas = <void**>calloc(self.num_replicas, sizeof(void*))
        self._indexes = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        self._log = <void**>calloc(self.num_replicas, sizeof(void*))
        if self._replicas == NULL or self._indexes == NULL or self._log == NULL:
            raise MemoryError()
        for i, replica in enumerate(replicas):
            self._replicas[i], self._indexes[i] = <void*>replica, replica.index
            self._log[i] = <void*>self._logs[i] if self._logs[i] is not None else NULL
        kvs = [replica.scheduler.kv for replica in replicas]
        self._group([(kv.block_size, getattr(kv, "hash_tokens", kv.block_size), kv.hashes_ahead) for kv in kvs])

    def _group(self, sizes):
        """Give replicas with equal blocks one index of what they hold: blocks of other sizes have other hashes.

        sizes : (tokens of a block, tokens over which hashes are chained, tokens behind them that they cover) of each.
        """
        cdef int32_t i
        groups = list(dict.fromkeys(sizes))
        self.block_size = gcd(*[block_size for block_size, _, _ in groups])
        self._holder_list = [HolderSets(self.num_replicas) for _ in groups]
        self._group_of = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        self._groups = <CacheGroup*>calloc(len(groups), sizeof(CacheGroup))
        if len(groups) > 1:
            self._scaled = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
        if self._group_of == NULL or self._groups == NULL or (len(groups) > 1 and self._scaled == NULL):
            raise MemoryError()
        self._num_groups = len(groups)
        for i in range(self.num_replicas):
            self._group_of[i] = groups.index(sizes[i])
        for i in range(self._num_groups):
            self._groups[i].block_size, self._groups[i].hash_tokens, self._groups[i].hashes_ahead = groups[i]
            self._groups[i].scale = self._groups[i].block_size // self.block_size
            self._groups[i].holders = <void*>self._holder_list[i]
            self._groups[i].matched = <int32_t*>calloc(self.num_replicas, sizeof(int32_t))
            if self._groups[i].matched == NULL:
                raise MemoryError()
        self._found = self._groups[0].matched if self._num_groups == 1 else self._scaled

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self._num_groups):
            free(self._groups[i].matched)
        free(self._groups)
        free(self._group_of)
        free(self._scaled)
        free(self._replicas)
        free(self._indexes)
        free(self._log)
        free(self._hashes)

    def lag(self, Laggards laggards):
        """From now on bring lagging replicas up to date before a lookup."""
        self._laggards = laggards

    def watch_tiers(self):
        """Follow the KV tiers too, while still empty; return whether there is any to follow."""
        holdings = [replica.scheduler.tier and replica.scheduler.tier.holdings() for replica in self._replica_list]
        if self.tiers is None and any(holdings):
            self.tiers = LiveTiers(self._replica_list, holdings, self._owners,
                                   [self._holder_list[self._group_of[i]] for i in range(self.num_replicas)],
                                   self.block_size)
        return self.tiers is not None

    cdef const int32_t* tiers_in_turn(self, int32_t row, int32_t media, int64_t now_ns) except NULL nogil:
        self._see(now_ns)
        return self.tiers.in_turn(row, media)

    cdef const int32_t* best_tiers(self, int32_t row, const int8_t* order, int32_t num_ordered,
                                   int64_t now_ns) except NULL nogil:
        self._see(now_ns)
        return self.tiers.best(row, order, num_ordered)

    cdef const int32_t* find(self, int32_t row, int64_t now_ns) except NULL nogil:
        cdef int32_t i
        self._see(now_ns)
        if row != self._row:
            self._row = -1
            for i in range(self._num_groups):
                self._match(row, &self._groups[i])
            if self._num_groups > 1:
                self._scale()
            self._row = row
        return self._found

    cdef int _see(self, int64_t now_ns) except -1 nogil:
        """Bring the index up to date, unless the last reading is recent enough."""
        cdef int32_t i
        if self._delay_ns > 0 and now_ns - self._seen_ns < self._delay_ns:
            return 0
        self._seen_ns = now_ns
        if self._laggards is not None:
            self._bring_all(now_ns)
        self.outdated.collect(now_ns)
        for i in range(self.outdated.size):
            self._take_in(self.outdated.listed[i], now_ns)
        self.outdated.clear()
        if self.tiers is not None:
            self.tiers.take_in_stores(now_ns)
        return self._check() if SIM_DEBUG else 0

    cdef int _bring_all(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        for i in range(self.num_replicas):
            self._laggards.bring_up(<Replica>self._replicas[i], now_ns)
            self.outdated.note(i)
        return 0

    cdef int _take_in(self, int32_t replica, int64_t now_ns) except -1 nogil:
        if self._log[replica] == NULL and self.tiers is None:
            return 0
        (<Replica>self._replicas[replica]).keep_up(self._departures.acted_until_ns(self._indexes[replica], now_ns))
        self.outdated.keep_until(replica, next_cache_change_ns(<Replica>self._replicas[replica]))
        if self.tiers is not None:
            self.tiers.take_in(replica)
        if self._log[replica] == NULL or (<CacheLog>self._log[replica]).size == 0:
            return 0
        self._row = -1
        return note_holder(<HolderSets>self._groups[self._group_of[replica]].holders, <CacheLog>self._log[replica],
                           replica)

    cdef int _match(self, int32_t row, const CacheGroup* group) except -1 nogil:
        cdef int32_t num_blocks = max(min(self._requests[row].prompt_tokens, self._content.public_tokens(row))
                                      - group.hashes_ahead, 0) // group.block_size
        cdef int32_t pieces = group.block_size // group.hash_tokens, i
        if num_blocks * pieces > self._room:
            resize(&self._hashes, 2 * num_blocks * pieces * sizeof(uint64_t))
            self._room = 2 * num_blocks * pieces
        read_hashes(self._content, row, group.hash_tokens, num_blocks * pieces, self._hashes, group.hashes_ahead)
        for i in range(num_blocks if pieces > 1 else 0):
            self._hashes[i] = self._hashes[(i + 1) * pieces - 1]
        (<HolderSets>group.holders).match(self._hashes, num_blocks, group.matched)
        return 0

    cdef void _scale(self) noexcept nogil:
        """Convert the matches of all groups to units of `block_size`."""
        cdef const CacheGroup* group
        cdef int32_t i, k
        memset(self._scaled, 0, self.num_replicas * sizeof(int32_t))
        for k in range(self._num_groups):
            group = &self._groups[k]
            for i in range(self.num_replicas):
                self._scaled[i] += group.matched[i] * group.scale

    cdef int _check(self) except -1 nogil:
        cdef int32_t i
        self.outdated.check()
        for i in range(self.num_replicas):
            if self._log[i] == NULL and self.tiers is None:
                continue
            (<Replica>self._replicas[i]).keep_up(self._departures.acted_until_ns(self._indexes[i], self._seen_ns))
            if self.tiers is not None:
                self.tiers.check_replica(i)
            if self._log[i] != NULL and (<CacheLog>self._log[i]).size > 0:
                return broken("LiveCaches: a prefix cache has changed unseen")
        return 0

    def check(self):
        """Raise RuntimeError if a cache has changed since the last look without an entry in `outdated` (for tests)."""
        cdef HolderSets holders
        self._check()
        for holders in self._holder_list:
            holders.check()
        if self.tiers is not None:
            self.tiers.check()
