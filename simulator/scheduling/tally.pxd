"""What the sequences of a batch bring besides tokens: LoRA adapters and grammars."""
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
    cdef int32_t _group                 # whose members the batch has all; -1: they are visited
    cdef int32_t* _masked               # [group] members with a grammar
    cdef int32_t* _distinct             # [group] adapters among members
    cdef int32_t* _members              # [group, adapter] members with it
    cdef const int32_t[::1] _ranks      # [adapter]; None: nobody asks
    cdef int64_t* _counted              # [adapter] the batch that last had it visited
    cdef int64_t _batch                 # number of the last one formed; a run of them is passed over as one
    cdef int64_t* _latest               # [group] the last one with its members
    cdef readonly int32_t unsettled     # others' adapters took the place of those of members of groups that are not at
                                        # hand, which load them anew: for so many more batches they may not be alike

    # A sequence becomes a member of a group, or is one no more.
    cdef inline void join(self, int32_t row, int32_t group) noexcept nogil:
        self._change(&self._demands[row], group, 1)

    cdef inline void leave(self, int32_t row, int32_t group) noexcept nogil:
        self._change(&self._demands[row], group, -1)

    # A batch is formed: of all members of a group, with so many drafts each, if none is without a turn; else they are
    # visited, as those that are no members are. `row`: its sequence has that many rows of logits to be masked.
    cdef void begin(self, BatchShape* shape, int32_t group, int32_t drafts, bint is_whole) noexcept nogil
    cdef void visit(self, BatchShape* shape, int32_t row, int32_t rows) noexcept nogil

    # All were visited: adapters that the worker lacks are loaded.
    cdef void load(self, Batch* batch) noexcept nogil

    # Batches of members of a group alone were formed, whose number does not matter.
    cdef inline void repeat(self, int32_t group) noexcept nogil:
        self._batch += 1
        self._latest[group] = self._batch

    # All were visited: the largest rank among the adapters of the batch.
    cdef int32_t largest_rank(self) noexcept nogil

    cdef void _change(self, const Demand* demand, int32_t group, int32_t by) noexcept nogil
    cdef bint _is_needed(self, int32_t adapter) noexcept nogil
    cdef bint _has_all(self, const Batch* batch) noexcept nogil
    cdef bint _lack_some(self) noexcept nogil
    cdef void _touch_members(self, int32_t group) noexcept nogil
    cdef inline int32_t _members_of(self, int32_t group, int32_t adapter) noexcept nogil:
        return self._members[<int64_t>group * self._num_adapters + adapter]
