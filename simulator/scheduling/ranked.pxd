"""Continuous batching whose waiting queue and victims follow the keys of a policy; see ranked.pyx."""
from libc.stdint cimport int32_t, int64_t

from simulator.core.index_heap cimport IndexHeap
from simulator.core.row_list cimport RowList
from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport Demand, Request
from simulator.kv.tier cimport External
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.in_order cimport InOrder
from simulator.scheduling.waiting_queue cimport Ranking


cdef struct Yielding:           # one that runs and may give way
    double standing             # in the batch being formed
    int64_t order               # of its admission
    int32_t slot


cdef struct Stand:              # where one that runs stands, as worked out last
    int64_t order               # of its admission
    int64_t until_ns            # it stands there until then
    int32_t queue               # or what else the policy stands it by


cdef class RequestRanking(Ranking):
    cdef const Request* requests        # of the workload, like demands
    cdef const Demand* demands
    cdef object _owners                 # the arrays these pointers borrow from


cdef class Ranked(InOrder):
    cdef int64_t _threshold             # longest chunk of a prompt, in tokens
    cdef Ranking _ranking               # of those who wait
    cdef bint _evicts_last_ranked       # the victim has the largest key; else it was admitted last
    cdef bint _outputs_are_prompts      # some prompt contains what another request generates

    cdef bint _gives_way                # who runs may lose its place to who waits: by _standing, which is then answered
    cdef int64_t _may_give_way          # so many, in the batch being formed; the policy may set it in _begin_batch
    cdef int64_t _given_way             # preemptions for a place, so far
    cdef bint _learns                   # it goes by what iterations with prompts took, see _learn
    cdef int64_t _now_ns                # of the batch formed last
    cdef int64_t _forgotten_ns          # likewise, when the process ended last; -1: it has not
    cdef Yielding* _line                # [max_running] a binary heap of those that may give way, the last first
    cdef int32_t _in_line               # how many there are; -1: not looked up since places were asked for
    cdef bint _is_heap                  # else it is none yet, and `_last` of it is the last
    cdef int32_t _last
    cdef Stand* _stands                 # [_num_stands] by slot
    cdef int32_t _num_stands
    cdef RowList _placed                # rows that wait and have found a place
    cdef IndexHeap _frontier            # places of the waiting queue's heap below theirs
    cdef RowList _displaced             # rows that have lost theirs, and are not in the queue yet

    # Order the waiting queue; the policy's __init__ ends with this.
    cdef int _rank_by(self, object context, Ranking ranking) except -1

    # A batch is about to be formed: keys may be brought up to date, and the budget set. Where nothing executes anything
    # at once with it (no pipeline stages), nothing is in flight.
    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil

    # Who is next of those who wait, there are some; it is about to be admitted, and leaves the queue. It stays the same
    # one while nobody comes, leaves or is admitted.
    cdef int32_t _next_row(self) noexcept nogil
    cdef int _take(self, int32_t row) except -1 nogil

    # The row that was next has found a place: somebody else is. All is as before when places have been looked for.
    # These are for policies whose next row is the top of the queue.
    cdef int _set_aside(self, int32_t row) except -1 nogil
    cdef int _end_looking(self) except -1 nogil
    cdef int32_t _next_beside(self) noexcept nogil

    # Where a request stands in the batch being formed, the least first: it runs in this slot, or waits (-1).
    cdef double _standing(self, int32_t row, int32_t slot) noexcept nogil

    # The same of all that are in line, whose slots and orders are noted; `_stands` may keep what is known.
    cdef void _stand(self) noexcept nogil

    # A batch with prompts has ended, asked before the next is formed in its place: its `shape` and `duration_ns`.
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
