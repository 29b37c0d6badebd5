"""Times at which decoding sequences take and give back blocks, in several groups of layers.

A sequence gains one token in each turn, a step that schedules it. The events of a turn depend on the number of tokens
computed when it begins, modulo the unit of all blocks: a member of the cohort with phase p begins a turn with r
computed tokens, modulo the unit, in iterations of phase p + r.
"""
from libc.stdint cimport int32_t, uint64_t
cimport cython


cdef struct Event:              # blocks that a turn takes and gives back in one kind
    int32_t rest                # computed tokens when it begins, modulo the unit
    int32_t kind
    int32_t taken               # blocks
    int32_t given               # blocks, if the kind is active: see LayerKind.steady_until


cdef struct Visit:              # all events of turns that begin with `rest` computed tokens, modulo the unit
    int32_t rest
    int32_t num_givers, num_takers, num_counted
    int32_t* givers             # [num_givers] numbers of groups that may give a block back, in order; of a kind
                                # `in_a_row` its first
    int32_t* takers             # [num_takers] numbers of groups that take a block, in order, besides `num_counted` of
                                # kinds that are counted
    bint fills                  # a block of `unit` tokens is full, and may enter the prefix cache


@cython.final
cdef class TurnEvents:
    cdef Visit* visits          # [num_visits] all turns with an event
    cdef int32_t num_visits
    cdef int32_t most_given     # blocks that a turn can give back
    cdef Event* _events         # [_num_events]
    cdef int32_t _num_events
    cdef int32_t _unit

    # A member of this phase joins (1) or leaves (-1): change the blocks due and the blocks given back, [phase].
    cdef void count(self, int32_t phase, uint64_t active, int32_t times, int32_t* due, int32_t* given) noexcept nogil
