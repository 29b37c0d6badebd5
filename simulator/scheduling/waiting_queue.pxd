"""The waiting queue of a replica: first come first served, or sorted."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.index_heap cimport IndexHeap
from simulator.domain.request cimport Demand, Request


cdef enum QueueOrder:           # who goes first; ties: who arrived first, then the rank of the request id
    FIRST_COME = 0              # in the order in which they came; nothing is sorted
    BY_PRIORITY = 1             # lowest priority
    REVERSE_PRIORITY = 2        # highest
    SHORTEST_FIRST = 3          # shortest prompt
    BY_ARRIVAL = 4              # who arrived first at the cluster
    LATEST_FIRST = 5            # who arrived last
    SHORTEST_OUTPUT = 6         # least output foretold; of whom nothing is foretold, last
    BY_RANKING = 7              # smallest key of a Ranking


cdef class Ranking:             # a policy's order of those who wait, smallest key first
    # While a row waits it stays the same.
    cdef int64_t key(self, int32_t row) noexcept nogil

    # A row enters the queue (1) or leaves it (-1), for whatever reason.
    cdef void count(self, int32_t row, int32_t change) noexcept nogil


@cython.final
cdef class WaitingQueue:
    cdef readonly int32_t size      # rows that wait
    cdef readonly int64_t tokens    # their texts: prompts, and outputs of those that were preempted; who changes the
                                    # outputs of a waiting row adds them here
    cdef int _order                 # QueueOrder
    cdef const Request* _requests   # borrowed, as _demands; whoever made the queue keeps the arrays alive
    cdef const Demand* _demands
    cdef int32_t* _ring             # [_mask + 1] first come first served: rows from _head on, wrapping around
    cdef int32_t _head              # place of the first row in the ring
    cdef int32_t _mask              # size of the ring - 1, a power of two less one; -1: no ring yet
    cdef IndexHeap _heap            # rows by their keys; None: first come first served
    cdef Ranking _ranking           # whose keys these are; None: the order says
    cdef int32_t* _with_adapter     # [adapters + 1] rows by their LoRA adapter, those without one first; NULL: nobody
                                    # counts them

    # Sort by the keys of a ranking; the queue is empty.
    cdef void rank_by(self, Ranking ranking) noexcept

    # Count rows by their adapters from now on; the queue is empty.
    cdef int count_adapters(self, int32_t num_adapters) except -1

    # Rows with an adapter, of those counted; -1: those without one.
    cdef inline int32_t with_adapter(self, int32_t adapter) noexcept nogil:
        return self._with_adapter[adapter + 1]

    # Add a row at the back, or in front of the others; sorted, its key says where. -1 without memory, and nothing
    # changed.
    cdef int push(self, int32_t row) except -1 nogil
    cdef int push_front(self, int32_t row) except -1 nogil

    # The next row, left in the queue or taken out of it; the queue must not be empty.
    cdef int32_t top(self) noexcept nogil
    cdef int32_t pop(self) noexcept nogil

    # Take a row out of the middle; -1 if it is not there. O(size), or O(log size) where it knows places.
    cdef int remove(self, int32_t row) noexcept nogil

    # Sorted, does a row go before another? First come first served, nobody does.
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

    # The row at a place, from 0; there is one. Sorted, who stands there goes before those at 2i + 1 and 2i + 2.
    cdef int32_t at(self, int32_t place) noexcept nogil
