"""The waiting queue of a replica: first come first served, or sorted; rows may be parked by their cause to wait."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.index_heap cimport IndexHeap
from simulator.core.row_list cimport RowList
from simulator.domain.request cimport Demand, Request
from simulator.scheduling.cause_queue cimport CauseQueue


cdef enum QueueOrder:           # order of the queue; ties: first arrival, then the rank of the request id
    FIRST_COME = 0              # in order of push; nothing is sorted
    BY_PRIORITY = 1             # lowest priority
    REVERSE_PRIORITY = 2        # highest
    SHORTEST_FIRST = 3          # shortest prompt
    BY_ARRIVAL = 4              # first arrival at the cluster
    LATEST_FIRST = 5            # last arrival
    SHORTEST_OUTPUT = 6         # least predicted output; requests without a prediction last
    BY_RANKING = 7              # smallest key of a Ranking
    PRIORITY_HERE = 8           # lowest priority; ties: first to reach this queue, whatever its arrival at the cluster


cdef class Ranking:             # a policy's order of waiting rows, smallest key first
    # The key of a row, which must not change while it waits.
    cdef int64_t key(self, int32_t row) noexcept nogil

    # A row enters the queue (1) or leaves it (-1), for whatever reason.
    cdef void count(self, int32_t row, int32_t change) noexcept nogil


@cython.final
cdef class WaitingQueue:
    cdef readonly int32_t size      # rows that wait
    cdef readonly int64_t tokens    # of their texts: prompts, and outputs of preempted requests; code that changes the
                                    # outputs of a waiting row adds them here
    cdef int _order                 # QueueOrder
    cdef const Request* _requests   # borrowed, like _demands; the queue's creator keeps the arrays alive
    cdef const Demand* _demands
    cdef int32_t* _ring             # [_mask + 1] first come first served: rows from _head on, wrapping around
    cdef int32_t _head              # place of the first row in the ring
    cdef int32_t _mask              # size of the ring - 1, a power of two less one; -1: no ring yet
    cdef IndexHeap _heap            # rows by their keys; None: first come first served
    cdef Ranking _ranking           # the source of keys; None: the order defines them
    cdef CauseQueue _causes         # the rows, once they can be parked; None: they are in _ring or _heap
    cdef int64_t _front, _back      # of _causes, first come first served: places of the next row at the front and back
    cdef bint _knows_adapters       # of _causes: each adapter is a cause
    cdef bint _knows_grammars       # of _causes: rows with a grammar are looked at before their adapter counts
    cdef RowList _aside             # rows that a pass has passed over, in order

    # Sort by the keys of a ranking; the queue is empty.
    cdef void rank_by(self, Ranking ranking) noexcept

    # Let rows be parked from now on; those that wait keep their order. `num_adapters`: adapters with fewer slots; 0:
    # each has one. `has_grammars`: rows may wait for grammars.
    cdef int let_park(self, int32_t num_adapters, bint has_grammars) except -1 nogil

    # Add a row at the back, or at the front; in a sorted queue its key sets its place. -1 if memory runs out, with
    # nothing changed.
    cdef int push(self, int32_t row) except -1 nogil
    cdef int push_front(self, int32_t row) except -1 nogil

    # The next row, left in the queue or taken out of it; the queue must not be empty. Parked rows are so no longer.
    cdef int32_t top(self) noexcept nogil
    cdef int32_t pop(self) noexcept nogil

    # Take a row out of the middle; -1 if it is not there. O(size), or O(log size) with knows_places or parked rows.
    cdef int remove(self, int32_t row) noexcept nogil

    # Does a row go before another in a sorted queue? False in an unsorted one.
    cdef bint precedes(self, int32_t row, int32_t other) noexcept nogil

    # ---- a pass over the queue, which admits rows in order, except those with a cause to wait

    # The first row that is not parked, and not under an adapter without a slot unless there are free slots; -1: none.
    cdef inline int32_t first(self, bint has_free_slots) noexcept nogil:
        if self._causes is not None:
            return self._causes.first(has_free_slots)
        if self.size == 0:
            return -1
        return self._ring[self._head] if self._order == FIRST_COME else self._heap.top()

    # The first row is admitted, and leaves. Or it is passed over until `put_back`, at the end of the pass.
    cdef inline void take(self, int32_t row) noexcept nogil:
        if self._causes is not None:
            self.remove(row)
        elif self._order == FIRST_COME:
            self._count(row, -1)
            self._head = (self._head + 1) & self._mask
        else:
            self.pop()

    cdef int set_aside(self, int32_t row) except -1 nogil
    cdef inline int put_back(self) except -1 nogil:
        return self._put_back() if self._aside.size > 0 else 0

    # Park the first row until an instant, NEVER_NS: for good; or under its adapter, which has no slot. False: rows
    # cannot be parked.
    cdef bint park_until(self, int32_t row, int64_t instant_ns) except -1 nogil
    cdef bint park_under_adapter(self, int32_t row) noexcept nogil

    # The instants of parked rows up to `now_ns` have come: the rows have their places in the queue again.
    cdef inline void wake(self, int64_t now_ns) noexcept nogil:
        if self._causes is not None:
            self._causes.wake(now_ns)

    # An adapter has a slot from now on, or has none any more.
    cdef inline void set_slot(self, int32_t adapter, bint has_slot) noexcept nogil:
        if self._causes is not None:
            self._causes.set_open(adapter + 1, has_slot)

    cdef inline void _count(self, int32_t row, int32_t change) noexcept nogil:
        self.size += change
        self.tokens += change * self._text(row)
        if self._ranking is not None:
            self._ranking.count(row, change)

    cdef inline int64_t _text(self, int32_t row) noexcept nogil:
        return <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens

    cdef int64_t _key(self, int32_t row) noexcept nogil
    cdef int64_t _arrival(self, int32_t row) noexcept nogil
    cdef int _put_back(self) except -1 nogil
    cdef int _push_cause(self, int32_t row, bint is_front) except -1 nogil
    cdef int _move_to_causes(self, int32_t num_causes) except -1
    cdef int _grow(self) except -1 nogil

    # The row at an index, from 0, which must exist. In a sorted queue it goes before those at 2i + 1 and 2i + 2. Not
    # where rows can be parked.
    cdef int32_t at(self, int32_t place) noexcept nogil
