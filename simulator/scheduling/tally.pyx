"""LoRA adapters and grammars of the sequences of a batch.

Members are counted when they join and leave, so that a batch has no cost per member.
"""
from libc.stdlib cimport calloc, free
cimport cython


@cython.final
cdef class Tally:
    """Tally of one replica.

    demands : structured array (n,), `records.DEMAND`. num_groups : groups of members.
    num_adapters : adapters named by requests; 0: they are not counted. slots : AdapterSlots, None: loads take no time.
    ranks : int32 (a,), ranks of the adapters; None: not needed.
    base : the one of num_adapters of requests without an adapter, which is in no shape; -1: they have none.
    """

    def __cinit__(self, const Demand[::1] demands, int32_t num_groups, int32_t num_adapters, AdapterSlots slots,
                  ranks=None, int32_t base=-1):
        self._base = base
        self._owner, self.slots, self._ranks = demands, slots, ranks
        self.has_ranks = ranks is not None
        self._demands = &demands[0] if len(demands) else NULL
        self._num_adapters, self._num_groups = num_adapters, num_groups
        self._masked = <int32_t*>calloc(num_groups, sizeof(int32_t))
        self._distinct = <int32_t*>calloc(num_groups, sizeof(int32_t))
        self._members = <int32_t*>calloc(<int64_t>num_groups * num_adapters + 1, sizeof(int32_t))
        self._counted = <int64_t*>calloc(num_adapters + 1, sizeof(int64_t))
        self._latest = <int64_t*>calloc(num_groups, sizeof(int64_t))
        self.present = <int32_t*>calloc(num_adapters + 1, sizeof(int32_t))
        self._total = <int32_t*>calloc(num_adapters + 1, sizeof(int32_t))
        self._place = <int32_t*>calloc(num_adapters + 1, sizeof(int32_t))
        if (self._latest == NULL or self._masked == NULL or self._distinct == NULL or self._members == NULL
                or self._counted == NULL or self.present == NULL or self._total == NULL or self._place == NULL):
            raise MemoryError()

    def __dealloc__(self):
        free(self._masked)
        free(self._distinct)
        free(self._members)
        free(self._counted)
        free(self._latest)
        free(self.present)
        free(self._total)
        free(self._place)

    cdef void _change(self, const Demand* demand, int32_t group, int32_t by) noexcept nogil:
        cdef int32_t adapter = self._adapter_of(demand)
        cdef int32_t* members
        self._masked[group] += by if demand.grammar >= 0 else 0
        if self._num_adapters == 0 or adapter < 0:
            return
        members = &self._members[<int64_t>group * self._num_adapters + adapter]
        members[0] += by
        self._note_present(adapter, by)
        if by > 0:
            self._distinct[group] += members[0] == 1 and adapter != self._base
            if self.slots is not None and not self.slots.has(adapter):
                self.unsettled = self._num_groups + 1       # it was evicted while the batch was in flight
        else:
            self._distinct[group] -= members[0] == 0 and adapter != self._base
            if self.slots is not None:
                self.slots.touch(adapter, self._latest[group])      # its last use was in that batch

    cdef void _note_present(self, int32_t adapter, int32_t by) noexcept nogil:
        cdef int32_t last, place
        self._total[adapter] += by
        if by > 0 and self._total[adapter] == 1:
            self._place[adapter] = self.num_present
            self.present[self.num_present] = adapter
            self.num_present += 1
        elif by < 0 and self._total[adapter] == 0:
            self.num_present -= 1
            last, place = self.present[self.num_present], self._place[adapter]
            self.present[place], self._place[last] = last, place

    cdef void begin(self, BatchShape* shape, int32_t group, int32_t drafts, bint is_whole) noexcept nogil:
        if not is_whole and self.slots is not None:
            self._touch_members(group)              # from now on, scheduled members are visited
        self._batch += 1
        self._group = group if is_whole else -1
        if is_whole:
            self._latest[group] = self._batch
            shape.num_masks, shape.num_adapters = self._masked[group] * (1 + drafts), self._distinct[group]

    cdef void visit(self, BatchShape* shape, int32_t row, int32_t rows) noexcept nogil:
        cdef const Demand* demand = &self._demands[row]
        cdef int32_t adapter = self._adapter_of(demand)
        if demand.grammar >= 0:
            shape.num_masks += rows
        if self._num_adapters == 0 or adapter < 0 or self._counted[adapter] == self._batch:
            return
        self._counted[adapter] = self._batch
        if adapter != self._base and (self._group < 0 or self._members_of(self._group, adapter) == 0):
            shape.num_adapters += 1

    cdef int32_t largest_rank(self) noexcept nogil:
        cdef int32_t largest = 0, i
        for i in range(self._num_adapters):
            if self._counted[i] == self._batch or (
                    self._group >= 0 and self._members[<int64_t>self._group * self._num_adapters + i] > 0):
                largest = max(largest, self._ranks[i])
        return largest

    cdef bint _is_needed(self, int32_t adapter) noexcept nogil:
        """Return whether the batch just visited uses an adapter."""
        return self._counted[adapter] == self._batch or (
            self._group >= 0 and self._members_of(self._group, adapter) > 0)

    cdef bint _has_all(self, const Batch* batch) noexcept nogil:
        """Return whether no adapter must be loaded for a batch, if members have theirs."""
        cdef int32_t i, adapter
        for i in range(batch.num_entries):
            adapter = self._adapter_of(&self._demands[batch.entries[i].row])
            if adapter >= 0 and batch.entries[i].tokens > 0:
                if not self.slots.has(adapter):
                    return False
                self.slots.touch(adapter, self._batch)
        return True

    cdef void _touch_members(self, int32_t group) noexcept nogil:
        cdef int32_t i
        for i in range(self._num_adapters):
            if self._members_of(group, i) > 0:
                self.slots.touch(i, self._latest[group])

    cdef void load(self, Batch* batch) noexcept nogil:
        cdef int32_t group, i
        if self.unsettled == 0 and self._group >= 0 and self._has_all(batch):
            return
        for group in range(self._num_groups):
            self._touch_members(group)
        for i in range(self._num_adapters):         # adapters of the batch are not evicted
            if self._is_needed(i):
                self.slots.touch(i, self._batch)
        for i in range(self._num_adapters):
            if self._is_needed(i):
                self.slots.use(i, self._batch, &batch.shape)
        if batch.num_entries + batch.num_members > 0:       # an empty batch keeps those in flight unsettled
            self.unsettled = max(self.unsettled - 1, 0)
        if self._lack_some() or (batch.num_entries == 0 and batch.shape.num_loads > 0):
            self.unsettled = self._num_groups + 1

    cdef bint _lack_some(self) noexcept nogil:
        """Return whether members lack their adapters."""
        cdef int32_t group, i
        for group in range(self._num_groups):
            for i in range(self._num_adapters):
                if self._members_of(group, i) > 0 and not self.slots.has(i):
                    return True
        return False
