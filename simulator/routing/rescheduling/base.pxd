"""Base class of reschedulers: moves of requests between replicas, and their times."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.signals.view cimport View


cdef enum SelectionRule:            # unit of a move's budget; RULE_NAMES in base.pyx follows
    NUM_REQ                         # requests; -1: all, including those that have not computed their prompt
    TOKEN                           # tokens of their texts
    RATIO                           # tokens, as a part of the source's KV cache


cdef enum SelectionOrder:           # order of moves; ORDER_NAMES follows
    LCR                             # the running request that arrived last
    FCR                             # ... that arrived first
    LR                              # ... with the longest text
    SR                              # ... with the shortest
    FCW                             # the waiting request that arrived first; running ones stay
    FCWSR                           # waiting ones as FCW; with the rest of the budget running ones as SR


cdef struct Selection:              # which requests of a source are to move
    double value                    # budget
    int8_t rule                     # SelectionRule
    int8_t order                    # SelectionOrder


cdef struct Move:                   # one decision of a rescheduler
    int32_t source                  # replicas, as the view counts them
    int32_t destination
    int32_t policy                  # index of the policy that made it
    Selection selection


cdef struct Movable:                # a request at a source, as the engine shows it to `select`
    int32_t row
    int32_t tokens                  # of its text: prompt and outputs so far
    int32_t outputs                 # output tokens among `tokens`
    int8_t is_running               # 0: it waits
    int8_t is_moving                # a move of it has begun


cdef class Rescheduler:
    cdef readonly View view
    cdef readonly int32_t num_replicas
    cdef readonly int64_t interval_ns   # from one plan to the next; the next waits until all moves of the last are over
    cdef Move* moves                # [num_moves] of the last plan
    cdef readonly int32_t num_moves
    cdef int32_t _room

    # Decide the moves; fills `moves`. The engine has brought all replicas up to `now_ns`.
    cdef int plan(self, int64_t now_ns) except -1 nogil

    # Write the indexes of the requests that are to move to `chosen`, in order, and return how many. `requests` are
    # those of the source: the running ones in the order of its running list, the waiting ones in that of its queue.
    # kv_tokens: room of its KV cache. scratch: [count].
    cdef int32_t select(self, const Move* move, const Movable* requests, int32_t count, int64_t kv_tokens,
                        int32_t* chosen, int32_t* scratch) noexcept nogil

    # For subclasses: add a move to `moves`, which grow as needed.
    cdef int add_move(self, int32_t source, int32_t destination, int32_t policy,
                      const Selection* selection) except -1 nogil


# The rule behind `select`.
cdef int32_t select_requests(const Selection* selection, const Movable* requests, int32_t count, int64_t kv_tokens,
                             int32_t* chosen, int32_t* scratch) noexcept nogil
