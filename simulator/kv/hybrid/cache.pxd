"""KV blocks of models whose layers need different parts of a text, and the sequences that decode together.

Members of the group take and give back blocks at times that are known (beats.pxd). Where no block is told from another
their blocks are counted, else each member is visited in the turns in which anything changes.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.hybrid.beats cimport Beats, Visit
from simulator.kv.hybrid.layer_kind cimport Table
from simulator.kv.hybrid.tables cimport GroupTables
from simulator.kv.members cimport Members


@cython.final
cdef class HybridKV(GroupTables):
    cdef Beats _beats           # None: nobody has joined yet
    cdef bint _visits           # members are visited; else they are counted
    cdef Members _members       # of the group, by phase, where they are visited
    cdef int32_t* _cursors      # [_beats.num_visits] slots: of those visited in this iteration, the next; -1: none

    cdef int _lay_out(self) except -1
    cdef int _reserve_for_life(self, int32_t slot) except -1 nogil
    cdef bint _holds_last_state(self, int32_t slot, int32_t number, const Table* table) noexcept nogil
    cdef int _visit(self, int32_t slot, const Visit* visit) except -1 nogil
    cdef int _advance(self, int32_t slot, int64_t computed) except -1 nogil
