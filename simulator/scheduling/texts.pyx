"""Who waits by tokens so far and length of text, for a policy that looks for the greatest gain.

What one gains falls with its tokens and depends on when it came; the gain for each token of the text falls with its
length, too. So those with about as many tokens stand on a shelf, the shortest text first, and the policy looks at as
many of a shelf as a bound of their gains allows. Shelves of up to 12 tokens are exact, later ones 1/12 wide.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.index_heap cimport IndexHeap
from simulator.scheduling.ranked cimport RequestRanking


@cython.final
cdef class Texts(RequestRanking):
    """Keys are all alike, so that the queue itself goes by arrival.

    context : ReplicaContext.
    """

    def __init__(self, context):
        cdef int64_t tokens = 0
        cdef int32_t i
        self._owned = [IndexHeap() for _ in range(MOST_SHELVES)]
        for i in range(MOST_SHELVES):
            self.heaps[i] = <void*>self._owned[i]
            self.shelves[i].least_tokens = <int32_t>min(tokens, 2**31 - 1)
            self.shelves[i].is_exact = tokens < 12
            tokens += max(tokens // 12, 1)

    cdef int32_t _shelf_of(self, int32_t tokens) noexcept nogil:
        cdef int32_t first = 0, end = MOST_SHELVES, middle
        while end - first > 1:
            middle = (first + end) >> 1
            if self.shelves[middle].least_tokens <= tokens:
                first = middle
            else:
                end = middle
        return first

    cdef void count(self, int32_t row, int32_t change) noexcept nogil:
        cdef int32_t tokens = self.requests[row].output_tokens, i = self._shelf_of(tokens)
        cdef int64_t arrival_ns = self.requests[row].arrival_ns
        cdef Shelf* shelf = &self.shelves[i]
        self.has_changed = True
        if change < 0:
            while (<IndexHeap>self.heaps[i]).remove(row) < 0 and i > 0:
                i -= 1                          # tokens have come while it waited: bounds of fewer hold all the more
            return
        if (<IndexHeap>self.heaps[i]).size == 0:
            shelf.earliest_ns = shelf.latest_ns = arrival_ns
        shelf.earliest_ns, shelf.latest_ns = min(shelf.earliest_ns, arrival_ns), max(shelf.latest_ns, arrival_ns)
        shelf.is_alike = shelf.is_exact and shelf.earliest_ns == shelf.latest_ns
        (<IndexHeap>self.heaps[i]).push(row, <int64_t>self.requests[row].prompt_tokens + tokens, arrival_ns,
                                        self.demands[row].tie_rank)
        self.num_came += 1
        self.num_shelves = max(self.num_shelves, i + 1)
