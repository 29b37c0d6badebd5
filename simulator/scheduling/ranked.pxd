"""Continuous batching with a waiting queue and victims by the keys of a policy; see ranked.pyx."""
from libc.stdint cimport int32_t, int64_t

from simulator.core.index_heap cimport IndexHeap
from simulator.core.row_list cimport RowList
from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport Demand, Request
from simulator.kv.tier cimport External
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.in_order cimport InOrder
from simulator.scheduling.waiting_queue cimport Ranking


cdef struct Yielding:           # a running sequence that may give way
    double standing             # in the batch being formed
    int64_t order               # admission stamp
    int32_t slot


cdef struct Stand:              # standing of a running sequence, as computed last
    int64_t order               # admission stamp
    int64_t until_ns            # end of this standing
    int32_t queue               # or another number of the policy


cdef class RequestRanking(Ranking):
    cdef const Request* requests        # borrowed from the workload, like demands
    cdef const Demand* demands
    cdef object _owners                 # the arrays these pointers borrow from


cdef class Ranked(InOrder):
    cdef int64_t _threshold             # longest chunk of a prompt, in tokens
    cdef Ranking _ranking               # order of waiting requests
    cdef bint _evicts_last_ranked       # the victim has the largest key; else it was admitted last
    cdef bint _outputs_are_prompts      # some prompt contains the output of another request

    cdef bint _gives_way                # running requests may give way to waiting ones, by _standing
    cdef int64_t _may_give_way          # most in the batch being formed; the policy may set it in _begin_batch
    cdef int64_t _given_way             # preemptions for a place, so far
    cdef bint _learns                   # it learns from the time of iterations with prompts, see _learn
    cdef int64_t _now_ns                # start of the batch formed last
    cdef int64_t _forgotten_ns          # start of the batch formed last when the process ended; -1: it has not
    cdef Yielding* _line                # [max_running] a binary heap of sequences that may give way, the last first
    cdef int32_t _in_line               # length of _line; -1: not built since places were needed
    cdef bint _is_heap                  # _line is a heap; if not, `_last` is the index of its last one
    cdef int32_t _last
    cdef Stand* _stands                 # [_num_stands] by slot
    cdef int32_t _num_stands
    cdef RowList _placed                # waiting rows that have found a place
    cdef IndexHeap _frontier            # indices of the next candidates in the heap of the waiting queue
    cdef RowList _displaced             # rows that have lost their place and are not in the queue yet

    # Order the waiting queue; the last call of the policy's __init__.
    cdef int _rank_by(self, object context, Ranking ranking) except -1

    # Called before a batch is formed: the policy may update keys and set the budget. Without pipeline stages nothing is
    # in flight then.
    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil

    # The first waiting row, of a queue that is not empty; the row is about to be admitted, and leaves the queue by
    # _take. It stays first while no request arrives, leaves or is admitted.
    cdef int32_t _next_row(self) noexcept nogil
    cdef int _take(self, int32_t row) except -1 nogil

    # The first row has found a place: another one becomes first. _end_looking undoes that for all, after the search for
    # places. The defaults suit policies that start with the top of the queue.
    cdef int _set_aside(self, int32_t row) except -1 nogil
    cdef int _end_looking(self) except -1 nogil
    cdef int32_t _next_beside(self) noexcept nogil

    # The standing of a request in the batch being formed, the least first: it runs in `slot`, or waits (-1).
    cdef double _standing(self, int32_t row, int32_t slot) noexcept nogil

    # Set the standing of all sequences in `_line`, by their slots and orders; `_stands` may cache known ones.
    cdef void _stand(self) noexcept nogil

    # Called before a batch is formed in the place of an ended one with prompts, of which it has `shape`, `duration_ns`.
    cdef void _learn(self, const Batch* batch) noexcept nogil

    # Tokens that a running sequence has generated.
    cdef int32_t _generated(self, int32_t slot) noexcept nogil

    cdef int _give_way(self, Batch* batch) except -1 nogil
    cdef bint _make_place(self, Batch* batch, int32_t row, int64_t* places, int64_t* blocks) except -1 nogil
    cdef int _line_up(self) except -1 nogil
    cdef int _make_room_for_line(self) except -1 nogil
    cdef void _list_running(self) noexcept nogil
    cdef void _order_line(self) noexcept nogil
    cdef int32_t _yielding(self, double before) noexcept nogil
    cdef int64_t _blocks_behind(self, double before) noexcept nogil
    cdef int64_t _spoken_for(self, int64_t* blocks) noexcept nogil
    cdef int32_t _least_ranked(self) noexcept nogil
    cdef int _continue_one_by_one(self, Batch* batch) except -1 nogil
    cdef int _make_room(self, Batch* batch, int32_t slot, int64_t tokens) except -1 nogil
    cdef int32_t _victim(self) noexcept nogil
    cdef int _admit_waiting(self, Batch* batch) except -1 nogil
    cdef bint _admit_next(self, Batch* batch, int32_t row) except -1 nogil
    cdef bint _hold_next(self, Batch* batch, int32_t row, int32_t hits, External found) except -1 nogil
    cdef bint _admit_held(self, Batch* batch) except -1 nogil
    cdef void _begin(self, Batch* batch, int32_t slot, int64_t tokens) noexcept nogil
