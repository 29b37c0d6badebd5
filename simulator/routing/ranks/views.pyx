"""Views of the ranks of replicas for two routers in a row: of groups of ranks, and of the ranks of one group."""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.domain.replica_state cimport hit_rate_of
from simulator.signals.media cimport NUM_MEDIA


cdef inline void _add_counts(ReplicaAccount* total, const ReplicaAccount* account) noexcept nogil:
    total.in_flight_tokens += account.in_flight_tokens
    total.expected_tokens += account.expected_tokens
    total.dispatched += account.dispatched
    total.in_flight += account.in_flight


@cython.final
cdef class Groups(View):
    """Each group of ranks as one replica.

    The reports of its ranks, and the gateway's accounts, are added up.

    num_replicas : groups.
    ranks : View of all ranks.
    sizes : of the groups, in order.
    """

    def __init__(self, num_replicas, View ranks, sizes):
        cdef int32_t group, i = 0
        self._ranks, self.knows_adapters = ranks, ranks.knows_adapters
        self._begins = <int32_t*>calloc(num_replicas + 1, sizeof(int32_t))
        self._group_of = <int32_t*>calloc(ranks.num_replicas, sizeof(int32_t))
        self._is_outdated = <int8_t*>calloc(num_replicas, sizeof(int8_t))
        self._outdated = <int32_t*>calloc(num_replicas, sizeof(int32_t))
        self._promised = <ReplicaAccount*>calloc(num_replicas, sizeof(ReplicaAccount))
        if (self._begins == NULL or self._group_of == NULL or self._is_outdated == NULL or self._outdated == NULL
                or self._promised == NULL):
            raise MemoryError()
        for group in range(num_replicas):
            self._begins[group + 1] = self._begins[group] + <int32_t>sizes[group]
            for i in range(self._begins[group], self._begins[group + 1]):
                self._group_of[i] = group
            self.add_up(group)

    def __dealloc__(self):
        free(self._begins)
        free(self._group_of)
        free(self._is_outdated)
        free(self._outdated)
        free(self._promised)

    def pass_on_wants(self):
        """Request from the ranks the fields that are requested of the groups."""
        for name in ("wants_counts", "wants_blocks", "wants_levels", "wants_times", "wants_caches", "wants_in_flight",
                     "wants_tiers", "wants_adapters"):
            setattr(self._ranks, name, getattr(self._ranks, name) or getattr(self, name))

    cdef void note(self, int32_t rank) noexcept nogil:
        cdef int32_t group = self._group_of[rank]
        if not self._is_outdated[group]:
            self._is_outdated[group] = True
            self._outdated[self._num_outdated] = group
            self._num_outdated += 1

    cdef void recount(self, int32_t rank) noexcept nogil:
        cdef int32_t group = self._group_of[rank]
        cdef int8_t was_routable = self.accounts[group].is_routable
        self.note(rank)
        self._add_accounts(group, &self.accounts[group])
        if self.accounts[group].is_routable != was_routable:
            self.mark(group)
        self.mark_in_flight(group)

    cdef void promise(self, int32_t group, int32_t sign, int64_t tokens, int64_t expected_tokens) noexcept nogil:
        cdef ReplicaAccount* promised = &self._promised[group]
        promised.in_flight += sign
        promised.dispatched += sign
        promised.in_flight_tokens += sign * tokens
        promised.expected_tokens += sign * expected_tokens
        self._add_accounts(group, &self.accounts[group])
        self.mark_in_flight(group)

    cdef int look(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        self._ranks.look(now_ns)
        for i in range(self._ranks.num_changed):
            self.note(self._ranks.changed[i])
        self._ranks.forget_changes()
        for i in range(self._num_outdated):
            self.add_up(self._outdated[i])
            self._is_outdated[self._outdated[i]] = False
            self.mark(self._outdated[i])
        self._num_outdated = 0
        self.looked_ns, self.has_tiers = self._ranks.looked_ns, self._ranks.has_tiers
        if self.wants_times:
            self._date_states()
        return 0

    cdef void _date_states(self) noexcept nogil:
        """Date each group by the latest report of its ranks: ranks report without a change, too."""
        cdef int32_t i
        for i in range(self._ranks.num_replicas):
            self.states[self._group_of[i]].time_ns = max(
                self.states[self._group_of[i]].time_ns, self._ranks.states[i].time_ns)

    cdef int32_t num_routable(self, int32_t group) noexcept nogil:
        cdef int32_t count = 0, i
        for i in range(self._begins[group], self._begins[group + 1]):
            count += self._ranks.accounts[i].is_routable
        return count

    cdef void add_up(self, int32_t group) noexcept nogil:
        self._add_states(group, &self.states[group])
        self._add_accounts(group, &self.accounts[group])

    cdef void _add_states(self, int32_t group, ReplicaState* total) noexcept nogil:
        cdef const ReplicaState* state
        cdef int32_t i
        memset(total, 0, sizeof(ReplicaState))
        for i in range(self._begins[group], self._begins[group + 1]):
            state = &self._ranks.states[i]
            total.time_ns = max(total.time_ns, state.time_ns)
            total.iterations = max(total.iterations, state.iterations)
            total.iteration_ns = max(total.iteration_ns, state.iteration_ns)
            total.is_silent |= state.is_silent
            total.block_size = state.block_size
            total.waiting_prefill_tokens += state.waiting_prefill_tokens
            total.running_prefill_tokens += state.running_prefill_tokens
            total.unallocated_prefill_tokens += state.unallocated_prefill_tokens
            total.waiting_tokens += state.waiting_tokens
            total.running_tokens += state.running_tokens
            total.loading_tokens += state.loading_tokens
            total.preemptions += state.preemptions
            total.prefix_query_tokens += state.prefix_query_tokens
            total.prefix_hit_tokens += state.prefix_hit_tokens
            total.iteration_prefill_tokens += state.iteration_prefill_tokens
            total.waiting += state.waiting
            total.running += state.running
            total.loading += state.loading
            total.used_blocks += state.used_blocks
            total.num_blocks += state.num_blocks
            total.max_running += state.max_running
            total.max_batched_tokens += state.max_batched_tokens
        total.cache_hit_rate = hit_rate_of(total)

    cdef void _add_accounts(self, int32_t group, ReplicaAccount* total) noexcept nogil:
        cdef const ReplicaAccount* account
        cdef int32_t i
        total[0] = self._ranks.accounts[self._begins[group]]
        _add_counts(total, &self._promised[group])
        for i in range(self._begins[group] + 1, self._begins[group + 1]):
            account = &self._ranks.accounts[i]
            _add_counts(total, account)
            total.up_since_ns = max(total.up_since_ns, account.up_since_ns)
            total.is_routable = total.is_routable or account.is_routable

    cdef const int32_t* cached_everywhere(self, int32_t row, int64_t now_ns) except NULL nogil:
        """Of each group the rank that has most of a prompt; see View."""
        cdef const int32_t* found = self._ranks.cached_everywhere(row, now_ns)
        cdef int32_t i
        memset(self.cached, 0, self.num_replicas * sizeof(int32_t))
        for i in range(self._ranks.num_replicas):
            self.cached[self._group_of[i]] = max(self.cached[self._group_of[i]], found[i])
        return self.cached

    cdef int32_t cached_blocks(self, int32_t replica, int32_t row, int64_t now_ns) except -1 nogil:
        return self.cached_everywhere(row, now_ns)[replica]

    cdef const int32_t* tiers_in_turn(self, int32_t row, int32_t media, int64_t now_ns) except NULL nogil:
        return self._most_of_groups(self._ranks.tiers_in_turn(row, media, now_ns))

    cdef const int32_t* best_tiers(self, int32_t row, const int8_t* order, int32_t num_ordered,
                                   int64_t now_ns) except NULL nogil:
        return self._most_of_groups(self._ranks.best_tiers(row, order, num_ordered, now_ns))

    cdef const int32_t* _most_of_groups(self, const int32_t* found) except NULL nogil:
        cdef int32_t num_ranks = self._ranks.num_replicas, group, rank, medium, blocks, most
        for group in range(self.num_replicas):
            most = -1
            for rank in range(self._begins[group], self._begins[group + 1]):
                blocks = 0
                for medium in range(NUM_MEDIA):
                    blocks += found[medium * num_ranks + rank]
                if blocks <= most:
                    continue
                most = blocks
                for medium in range(NUM_MEDIA):
                    self._tiered[medium * self.num_replicas + group] = found[medium * num_ranks + rank]
        return self._tiered

    cdef bint holds_adapter(self, int32_t replica, int32_t adapter, int64_t now_ns) noexcept nogil:
        """Say whether some rank of a group does."""
        cdef int32_t rank
        for rank in range(self._begins[replica], self._begins[replica + 1]):
            if self._ranks.holds_adapter(rank, adapter, now_ns):
                return True
        return False


@cython.final
cdef class Members(View):
    """The ranks of one group.

    num_replicas : number of ranks in the group.
    ranks : View of all ranks; source of the states.
    known : View of all ranks; source of the accounts, which the gateway keeps there.
    first : rank of the group.
    siblings : list of the Members of all groups, which this one joins.
    """

    def __init__(self, num_replicas, View ranks, View known, first, siblings):
        cdef Members owner
        cdef int32_t i
        self._ranks, self._siblings, self._first = ranks, siblings, first
        siblings.append(self)
        self.states, self.accounts = ranks.states + <int32_t>first, known.accounts + <int32_t>first
        self._owners = (ranks, known)
        owner = siblings[0]
        if owner is self:
            self._of_rank = <void**>calloc(ranks.num_replicas, sizeof(void*))
            if self._of_rank == NULL:
                raise MemoryError()
        else:
            self._of_rank = owner._of_rank
        for i in range(num_replicas):
            self._of_rank[self._first + i] = <void*>self

    def __dealloc__(self):
        if self._first == 0:
            free(self._of_rank)

    def pass_on_wants(self):
        """Request from all ranks the fields that are requested of this group."""
        for name in ("wants_counts", "wants_blocks", "wants_levels", "wants_times"):
            setattr(self._ranks, name, getattr(self._ranks, name) or getattr(self, name))

    cdef int look(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i, rank
        self._ranks.look(now_ns)
        for i in range(self._ranks.num_changed):
            rank = self._ranks.changed[i]
            (<Members>self._of_rank[rank]).mark(rank - (<Members>self._of_rank[rank])._first)
        self._ranks.forget_changes()
        self.looked_ns = self._ranks.looked_ns
        return 0
