"""LoRA adapters and grammars of the sequences of a batch."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.batch cimport BatchShape
from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport Demand
from simulator.scheduling.adapter_slots cimport AdapterSlots


@cython.final
cdef class Tally:
    cdef const Demand* _demands
    cdef object _owner
    cdef readonly AdapterSlots slots    # None: adapters take no time to load
    cdef bint has_ranks
    cdef int32_t _num_adapters, _num_groups
    cdef int32_t _base                  # the adapter of requests without one, which takes a slot; -1: they take none
    cdef int32_t _group                 # the group with all its members in the batch; -1: members are visited
    cdef int32_t* _masked               # [group] members with a grammar
    cdef int32_t* _distinct             # [group] adapters among members
    cdef int32_t* _members              # [group, adapter] members with the adapter
    cdef int32_t num_present            # adapters among members of any group
    cdef int32_t* present               # [num_present] adapters of members, in no particular order
    cdef int32_t* _total                # [adapter] members of all groups with the adapter
    cdef int32_t* _place                # [adapter] its place in `present`, if it is there
    cdef const int32_t[::1] _ranks      # [adapter]; None: not needed
    cdef int64_t* _counted              # [adapter] number of the batch that last visited it
    cdef int64_t _batch                 # number of the batch formed last; a run of batches counts as one
    cdef int64_t* _latest               # [group] number of the last batch with its members
    cdef readonly int32_t unsettled     # adapters of other groups' members were evicted, and must be loaded again:
                                        # batches for which shapes may differ

    # A sequence becomes a member of a group; it leaves the group.
    cdef inline void join(self, int32_t row, int32_t group) noexcept nogil:
        self._change(&self._demands[row], group, 1)

    cdef inline void leave(self, int32_t row, int32_t group) noexcept nogil:
        self._change(&self._demands[row], group, -1)

    # Begin a batch. `is_whole`: it has all members of a group, with `drafts` drafts each; else members are visited like
    # other sequences. `visit` adds a sequence, with `rows` rows of logits to mask.
    cdef void begin(self, BatchShape* shape, int32_t group, int32_t drafts, bint is_whole) noexcept nogil
    cdef void visit(self, BatchShape* shape, int32_t row, int32_t rows) noexcept nogil

    # After all visits: load adapters that the worker lacks.
    cdef void load(self, Batch* batch) noexcept nogil

    # Only batches of members of a group were formed; their number does not matter.
    cdef inline void repeat(self, int32_t group) noexcept nogil:
        self._batch += 1
        self._latest[group] = self._batch

    # Has a member of a group the adapter?
    cdef inline bint has_members(self, int32_t group, int32_t adapter) noexcept nogil:
        return self._members_of(group, adapter) > 0

    # After all visits: the largest rank among the adapters of the batch.
    cdef int32_t largest_rank(self) noexcept nogil

    cdef void _change(self, const Demand* demand, int32_t group, int32_t by) noexcept nogil
    cdef void _note_present(self, int32_t adapter, int32_t by) noexcept nogil
    cdef bint _is_needed(self, int32_t adapter) noexcept nogil
    cdef bint _has_all(self, const Batch* batch) noexcept nogil
    cdef bint _lack_some(self) noexcept nogil
    cdef void _touch_members(self, int32_t group) noexcept nogil
    cdef inline int32_t _adapter_of(self, const Demand* demand) noexcept nogil:
        return demand.adapter if demand.adapter >= 0 else self._base

    cdef inline int32_t _members_of(self, int32_t group, int32_t adapter) noexcept nogil:
        return self._members[<int64_t>group * self._num_adapters + adapter]
