"""What the sequences of a batch bring besides tokens: LoRA adapters and grammars.

Members are counted when they join and leave, so that a batch costs nothing for each of them.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport Demand
from simulator.scheduling.adapter_slots cimport AdapterSlots


@cython.final
cdef class Tally:
    """Of one replica.

    demands : structured array (n,), `records.DEMAND`. num_groups : of members.
    num_adapters : that requests ask for; 0: they are not counted. slots : AdapterSlots, None: loads take no time.
    ranks : int32 (a,), of the adapters; None: nobody asks.
    """

    def __cinit__(self, const Demand[::1] demands, int32_t num_groups, int32_t num_adapters, AdapterSlots slots,
                  ranks=None):
        self._owner, self.slots, self._ranks = demands, slots, ranks
        self.has_ranks = ranks is not None
        self._demands = &demands[0] if len(demands) else NULL
        self._num_adapters, self._num_groups = num_adapters, num_groups
        self._masked = <int32_t*>calloc(num_groups, sizeof(int32_t))
        self._distinct = <int32_t*>calloc(num_groups, sizeof(int32_t))
        self._members = <int32_t*>calloc(<int64_t>num_groups * num_adapters + 1, sizeof(int32_t))
        self._counted = <int64_t*>calloc(num_adapters + 1, sizeof(int64_t))
        if self._masked == NULL or self._distinct == NULL or self._members == NULL or self._counted == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self._masked)
        free(self._distinct)
        free(self._members)
        free(self._counted)

    cdef void _change(self, const Demand* demand, int32_t group, int32_t by) noexcept nogil:
        cdef int32_t* members
        self._masked[group] += by if demand.grammar >= 0 else 0
        if self._num_adapters == 0 or demand.adapter < 0:
            return
        members = &self._members[<int64_t>group * self._num_adapters + demand.adapter]
        members[0] += by
        if by > 0:
            self._distinct[group] += members[0] == 1
        else:
            self._distinct[group] -= members[0] == 0
            if self.slots is not None:
                self.slots.touch(demand.adapter)    # it was used up to now

    cdef void begin(self, BatchShape* shape, int32_t group, int32_t drafts, bint is_whole) noexcept nogil:
        self._batch += 1
        self._group = group if is_whole else -1
        if is_whole:
            shape.num_masks, shape.num_adapters = self._masked[group] * (1 + drafts), self._distinct[group]

    cdef void visit(self, BatchShape* shape, int32_t row, int32_t rows) noexcept nogil:
        cdef const Demand* demand = &self._demands[row]
        if demand.grammar >= 0:
            shape.num_masks += rows
        if self._num_adapters == 0 or demand.adapter < 0 or self._counted[demand.adapter] == self._batch:
            return
        self._counted[demand.adapter] = self._batch
        if self._group < 0 or self._members[<int64_t>self._group * self._num_adapters + demand.adapter] == 0:
            shape.num_adapters += 1

    cdef int32_t largest_rank(self) noexcept nogil:
        cdef int32_t largest = 0, i
        for i in range(self._num_adapters):
            if self._counted[i] == self._batch or (
                    self._group >= 0 and self._members[<int64_t>self._group * self._num_adapters + i] > 0):
                largest = max(largest, self._ranks[i])
        return largest

    cdef bint _has_member(self, int32_t adapter) noexcept nogil:
        cdef int32_t group
        for group in range(self._num_groups):
            if self._members[<int64_t>group * self._num_adapters + adapter] > 0:
                return True
        return False

    cdef void load(self, Batch* batch) noexcept nogil:
        cdef int32_t adapter, i
        cdef bint is_complete = True
        for i in range(batch.num_entries):
            adapter = self._demands[batch.entries[i].row].adapter
            is_complete = is_complete and (adapter < 0 or self.slots.has(adapter))
        if not is_complete:                         # what the batch needs stays
            for i in range(self._num_adapters):
                if self._counted[i] == self._batch or self._has_member(i):
                    self.slots.touch(i)
        for i in range(batch.num_entries):
            self.slots.use(self._demands[batch.entries[i].row].adapter, &batch.shape)
