"""The gateway's view of running replicas: at the instant of a look, or as of the last snapshot.

A snapshot is taken when a policy looks and the last one is as old as the interval, as in BLIS and as a cached scrape
would do; at first all states are empty, taken at time 0. A look reads the replicas that changed since the last look;
where replicas lag, it brings all up to date.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.debug cimport SIM_DEBUG
from simulator.core.errors cimport broken
from simulator.domain.replica_state cimport ReplicaState
from simulator.engine.replica.observation cimport next_blocks_ns, next_end_ns, observe
from simulator.engine.replica.replica cimport Replica

from math import gcd


cdef enum Closeness:            # fields that a live look keeps current; each level includes those before it
    NOTHING
    COUNTS
    BLOCKS
    LEVELS


@cython.final
cdef class LiveView(View):
    """A view of `replicas`.

    num_replicas : their number.
    replicas : list of Replica; `account.replica` is set to their indexes.
    shared : build.Shared, the objects shared by all parts of the cluster.
    delays_ns : ages up to which a snapshot of replica reports, and a reading of their prefix caches, is used again;
        0: always live.
    """

    def __init__(self, num_replicas, replicas, shared, delays_ns):
        cdef Replica replica
        cdef int32_t i
        self._interval_ns, self._cache_delay_ns = delays_ns
        self._replicas = <void**>calloc(num_replicas, sizeof(void*))
        if self._replicas == NULL:
            raise MemoryError()
        replicas = list(replicas)
        self._replica_list, self._owners, self._departures = replicas, shared, shared.departures
        self._outdated = Outdated(num_replicas)
        self.block_size = gcd(*{replica.scheduler.kv.block_size for replica in replicas})
        for i, replica in enumerate(replicas):
            self._replicas[i] = <void*>replica
            self.accounts[i].replica = replica.index
            observe(replica, 0, &self.states[i])
            self.knows_adapters = self.knows_adapters or replica.scheduler.tracks_adapters

    def __dealloc__(self):
        free(self._replicas)
        free(self._held)

    cdef int look(self, int64_t now_ns) except -1 nogil:
        if self._interval_ns == 0:
            return self._look_live(now_ns)
        return self._look_again(now_ns) if now_ns - self._taken_ns >= self._interval_ns else 0

    cdef int _look_again(self, int64_t now_ns) except -1 nogil:
        """Take a snapshot."""
        cdef int32_t i
        self._taken_ns = now_ns
        if self._laggards is not None:
            return self._read_all(now_ns)
        self._read_changed(LEVELS, now_ns)
        for i in range(self.num_replicas):
            if not self.states[i].is_silent:
                self.states[i].time_ns = now_ns
        return 0

    cdef int _look_live(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        if not self.wants_states():
            return 0
        self._read_changed(LEVELS if self.wants_levels else (BLOCKS if self.wants_blocks else COUNTS), now_ns)
        if self.wants_times:
            for i in range(self.num_replicas):      # idle ones report, too
                if not self.states[i].is_silent:
                    self.states[i].time_ns = now_ns
        return 0

    cdef int _read_all(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        for i in range(self.num_replicas):
            self._laggards.bring_up(<Replica>self._replicas[i], now_ns)
            self._read(i, now_ns)
        self.looked_ns = now_ns
        return 0

    cdef int _read_changed(self, int8_t closeness, int64_t now_ns) except -1 nogil:
        cdef int32_t i, replica
        if closeness > self._closeness:
            self._look_closer(closeness)
        self._outdated.collect(now_ns)
        for i in range(self._outdated.size):
            replica = self._outdated.listed[i]
            self._read(replica, now_ns)
            self._outdated.keep_until(replica, self._due_ns(replica, now_ns))
        self._outdated.clear()
        self.looked_ns = now_ns
        return self._check(now_ns) if SIM_DEBUG else 0

    cdef void _look_closer(self, int8_t closeness) noexcept nogil:
        """Keep more fields current; called before the first look at them."""
        cdef int32_t i
        self._closeness = closeness
        for i in range(self.num_replicas):
            if (<Replica>self._replicas[i]).wake_ns < NEVER_NS:
                self._outdated.note(i)

    cdef int _read(self, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef bint was_silent = self.states[replica].is_silent
        self.states[replica].is_silent = (<Replica>self._replicas[replica]).is_halted
        if self.states[replica].is_silent:  # a halted replica reports nothing: its last report grows old
            if not was_silent:
                self.states[replica].time_ns = (
                    self.looked_ns if self._interval_ns > 0 else (<Replica>self._replicas[replica]).halted_ns)
                self.mark(replica)
            return 0
        observe(<Replica>self._replicas[replica],
                self._departures.acted_until_ns(self.accounts[replica].replica, now_ns), &self.states[replica])
        if self._held != NULL:
            self._read_adapters(replica, now_ns)
        self.states[replica].time_ns = now_ns
        self.mark(replica)
        return 0

    def read_last(self, replica, now_ns):
        """Read a replica that is about to halt, if it is in this view: its last report is as of then.

        A snapshot stays as it is.
        """
        if self._interval_ns == 0 and replica in self._replica_list:
            self._read(self._replica_list.index(replica), now_ns)

    cdef int64_t _due_ns(self, int32_t replica, int64_t now_ns) noexcept nogil:
        """Return when the last reading of a replica is out of date, if it does not act before."""
        cdef int64_t until_ns = self._departures.acted_until_ns(self.accounts[replica].replica, now_ns)
        if self._closeness < BLOCKS or (<Replica>self._replicas[replica]).is_halted:
            return NEVER_NS
        if self._closeness == BLOCKS:
            return next_blocks_ns(<Replica>self._replicas[replica], until_ns)
        return next_end_ns(<Replica>self._replicas[replica], until_ns)

    @property
    def replicas(self):
        """The replicas in the view, in order of their index in it."""
        return self._replica_list

    cdef int _check(self, int64_t now_ns) except -1 nogil:
        cdef ReplicaState state
        cdef const ReplicaState* seen
        cdef int32_t i
        self._outdated.check()
        for i in range(self.num_replicas):
            if (<Replica>self._replicas[i]).is_halted:
                continue
            seen = &self.states[i]
            memcpy(&state, seen, sizeof(ReplicaState))
            observe(<Replica>self._replicas[i],
                    self._departures.acted_until_ns(self.accounts[i].replica, now_ns), &state)
            if (state.waiting != seen.waiting or state.running != seen.running or state.loading != seen.loading
                    or state.preemptions != seen.preemptions
                    or state.waiting_prefill_tokens != seen.waiting_prefill_tokens
                    or state.running_prefill_tokens != seen.running_prefill_tokens):
                return broken("LiveView: the counts of a replica have changed unseen")
            if self._closeness >= BLOCKS and state.used_blocks != seen.used_blocks:
                return broken("LiveView: the blocks of a replica have changed unseen")
            if self._closeness == LEVELS and (
                    state.running_tokens != seen.running_tokens or state.waiting_tokens != seen.waiting_tokens
                    or state.iterations != seen.iterations or state.iteration_ns != seen.iteration_ns):
                return broken("LiveView: the levels of a replica have changed unseen")
        return 0

    def lag(self, Laggards laggards):
        """From now on bring replicas up to date before a look: they lag behind the clock."""
        self._laggards = laggards
        if self._caches is not None:
            self._caches.lag(laggards)

    def watch(self, labels):
        """Follow from the first look on the signals that policies want; `labels` : of the workload."""
        if self.wants_caches:
            self.watch_caches()
        if self.wants_tiers:
            self.watch_tiers()
        if self.wants_adapters:
            self.watch_adapters(len(labels.get("adapter", ())))

    # ---- LoRA adapters

    def watch_adapters(self, int32_t num_adapters):
        """Follow which adapters are loaded; before the first look."""
        self._num_adapters = num_adapters
        if self._interval_ns > 0 and self._held == NULL:
            self._held = <int8_t*>calloc(<size_t>self.num_replicas * num_adapters + 1, sizeof(int8_t))
            if self._held == NULL:
                raise MemoryError()

    cdef void _read_adapters(self, int32_t replica, int64_t now_ns) noexcept nogil:
        cdef int8_t* held = &self._held[<int64_t>replica * self._num_adapters]
        cdef int32_t i
        for i in range(self._num_adapters):
            held[i] = (<Replica>self._replicas[replica]).scheduler.holds_adapter(i, now_ns)

    cdef bint holds_adapter(self, int32_t replica, int32_t adapter, int64_t now_ns) noexcept nogil:
        if self._held != NULL:
            return self._held[<int64_t>replica * self._num_adapters + adapter]
        return (<Replica>self._replicas[replica]).scheduler.holds_adapter(adapter, now_ns)

    # ---- prefix caches

    def watch_caches(self):
        """Follow the prefix caches from now on, while still empty."""
        if self._caches is not None:
            return
        self._caches = LiveCaches(self._replica_list, self._owners, self._cache_delay_ns)

    cdef const int32_t* cached_everywhere(self, int32_t row, int64_t now_ns) except NULL nogil:
        if self._caches is None:
            return self.cached
        return self._caches.find(row, now_ns)

    def watch_tiers(self):
        """Follow the KV tiers too, if there are any."""
        self.watch_caches()
        self.has_tiers = self._caches.watch_tiers()

    cdef const int32_t* tiers_in_turn(self, int32_t row, int32_t media, int64_t now_ns) except NULL nogil:
        if not self.has_tiers:
            return View.tiers_in_turn(self, row, media, now_ns)
        return self._caches.tiers_in_turn(row, media, now_ns)

    cdef const int32_t* best_tiers(self, int32_t row, const int8_t* order, int32_t num_ordered,
                                   int64_t now_ns) except NULL nogil:
        if not self.has_tiers:
            return View.best_tiers(self, row, order, num_ordered, now_ns)
        return self._caches.best_tiers(row, order, num_ordered, now_ns)

    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil:
        return self.cached_everywhere(row, now_ns)[replica]

    def check(self, now_ns):
        """Raise RuntimeError if it differs from the state of a replica or a prefix cache: right after a look."""
        if self._interval_ns == 0 and self._laggards is None and self._closeness != NOTHING:
            self._check(now_ns)
        if self._caches is not None and self._cache_delay_ns == 0:
            self._caches.check()
