"""KV blocks of models with layers that need different parts of a text, and the bulk-decode cohort of their sequences.

Members of the cohort take and give back blocks at known times (turn_events.pxd). Where no decision depends on which
block is which their blocks are counted; else each member is visited in the turns with an event.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.hybrid.turn_events cimport TurnEvents, Visit
from simulator.kv.hybrid.layer_kind cimport Table
from simulator.kv.hybrid.tables cimport GroupTables
from simulator.kv.members cimport Members


@cython.final
cdef class HybridKV(GroupTables):
    cdef TurnEvents _turn_events  # None: no sequence has joined yet
    cdef bint _visits           # members are visited; else they are counted
    cdef Members _members       # the cohort, by phase, where members are visited
    cdef int32_t* _cursors      # [_beats.num_visits] slots: the next member to be visited in this iteration; -1: none

    cdef int _lay_out(self) except -1
    cdef int _reserve_for_life(self, int32_t slot) except -1 nogil
    cdef bint _holds_last_state(self, int32_t slot, int32_t number, const Table* table) noexcept nogil
    cdef int _visit(self, int32_t slot, const Visit* visit) except -1 nogil
    cdef int _advance(self, int32_t slot, int64_t computed) except -1 nogil
