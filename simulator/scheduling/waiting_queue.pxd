"""The waiting queue of a replica: first come first served, or sorted."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.index_heap cimport IndexHeap
from simulator.domain.request cimport Demand, Request


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
    cdef int32_t* _with_adapter     # [adapters + 1] rows by their LoRA adapter, those without one first; NULL: not
                                    # counted

    # Sort by the keys of a ranking; the queue is empty.
    cdef void rank_by(self, Ranking ranking) noexcept

    # Count rows by their adapters from now on; the queue is empty.
    cdef int count_adapters(self, int32_t num_adapters) except -1

    # Counted rows with an adapter; -1: rows without one.
    cdef inline int32_t with_adapter(self, int32_t adapter) noexcept nogil:
        return self._with_adapter[adapter + 1]

    # Add a row at the back, or at the front; in a sorted queue its key sets its place. -1 if memory runs out, with
    # nothing changed.
    cdef int push(self, int32_t row) except -1 nogil
    cdef int push_front(self, int32_t row) except -1 nogil

    # The next row, left in the queue or taken out of it; the queue must not be empty.
    cdef int32_t top(self) noexcept nogil
    cdef int32_t pop(self) noexcept nogil

    # Take a row out of the middle; -1 if it is not there. O(size), or O(log size) with knows_places.
    cdef int remove(self, int32_t row) noexcept nogil

    # Does a row go before another in a sorted queue? False in an unsorted one.
    cdef bint precedes(self, int32_t row, int32_t other) noexcept nogil

    cdef inline void _count(self, int32_t row, int32_t change) noexcept nogil:
        self.size += change
        self.tokens += change * self._text(row)
        if self._with_adapter != NULL:
            self._with_adapter[self._demands[row].adapter + 1] += change
        if self._ranking is not None:
            self._ranking.count(row, change)

    cdef inline int64_t _text(self, int32_t row) noexcept nogil:
        return <int64_t>self._requests[row].prompt_tokens + self._requests[row].output_tokens

    cdef int64_t _key(self, int32_t row) noexcept nogil
    cdef int64_t _arrival(self, int32_t row) noexcept nogil
    cdef int _grow(self) except -1 nogil

    # The row at an index, from 0, which must exist. In a sorted queue it goes before those at 2i + 1 and 2i + 2.
    cdef int32_t at(self, int32_t place) noexcept nogil
