"""Waiting requests by tokens so far and length of text, for a search of the greatest gain.

A request's gain falls with its tokens and depends on its arrival; the gain per token of text also falls with its
length. So requests with similar numbers of tokens share a shelf, in parts, each sorted by length of text, and the
policy visits only the shelves, parts and texts that bounds of their gains do not exclude. Shelves of up to 12 tokens
are exact, later ones 1/12 wide, and parts 1/16 of that: exact up to 192 tokens.
"""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
cimport cython

from simulator.core.errors cimport broken
from simulator.core.heap cimport in_order, sift, sift_up
from simulator.core.memory cimport resize


@cython.final
cdef class Texts(RequestRanking):
    """Keys are all alike, so that the queue itself is in order of arrival.

    context : ReplicaContext.
    """

    def __init__(self, context):
        cdef int64_t tokens = 0, width
        cdef int32_t i
        cdef Shelf* shelf
        self.parts = <Part*>calloc(MOST_SHELVES * MOST_PARTS, sizeof(Part))
        self._spots = <Spot*>calloc(len(context.requests) + 1, sizeof(Spot))
        self._places = <int32_t*>malloc((len(context.requests) + 1) * sizeof(int32_t))
        if self.parts == NULL or self._spots == NULL or self._places == NULL:
            raise MemoryError()
        memset(self._places, 0xFF, (len(context.requests) + 1) * sizeof(int32_t))       # -1
        for i in range(MOST_SHELVES):
            shelf, width = &self.shelves[i], max(tokens // 12, 1)
            shelf.least_tokens = <int32_t>min(tokens, 2**31 - 1)
            shelf.part_tokens = <int32_t>((width + MOST_PARTS - 1) // MOST_PARTS)
            shelf.num_parts = <int32_t>((width + shelf.part_tokens - 1) // shelf.part_tokens)
            tokens += width

    def __dealloc__(self):
        cdef int32_t i
        for i in range(MOST_SHELVES * MOST_PARTS if self.parts != NULL else 0):
            free(self.parts[i].heap)
        free(self.parts)
        free(self._spots)
        free(self._places)

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
        if change > 0:
            self.put(row)
        elif self._places[row] >= 0:
            self.lift(row)

    cdef int put(self, int32_t row) except -1 nogil:
        cdef int32_t tokens = self.requests[row].output_tokens, i = self._shelf_of(tokens)
        cdef Shelf* shelf = &self.shelves[i]
        cdef int32_t k = (tokens - shelf.least_tokens) // shelf.part_tokens, room
        cdef Part* part = &self.parts[i * MOST_PARTS + k]
        cdef Placed entry
        if part.size == part.room:
            room = 2 * part.room + 4
            resize(&part.heap, room * sizeof(Placed))
            part.room = room
        entry.key, entry.index = <int64_t>self.requests[row].prompt_tokens + tokens, row
        entry.tie, entry.rank = self.requests[row].arrival_ns, self.demands[row].tie_rank
        self._spots[row].shelf, self._spots[row].part = <int16_t>i, <int16_t>k
        part.least_tokens, part.is_exact = shelf.least_tokens + k * shelf.part_tokens, shelf.part_tokens == 1
        self._widen(shelf, part, entry.tie, entry.key)
        shelf.size += 1
        part.size += 1
        sift_up(part.heap, self._places, part.size - 1, entry)
        self._note(row)
        return 0

    cdef void _widen(self, Shelf* shelf, Part* part, int64_t arrival_ns, int64_t text) noexcept nogil:
        """Add an arrival, and a text of `text` tokens, to the bounds of a shelf and its part."""
        if shelf.size == 0:
            shelf.place, self.occupied[self.num_occupied] = self.num_occupied, <int32_t>(shelf - &self.shelves[0])
            self.num_occupied += 1
            shelf.earliest_ns = shelf.latest_ns = arrival_ns
            shelf.least_text = text
        if part.size == 0:
            part.earliest_ns = part.latest_ns = arrival_ns
        shelf.earliest_ns, shelf.latest_ns = min(shelf.earliest_ns, arrival_ns), max(shelf.latest_ns, arrival_ns)
        part.earliest_ns, part.latest_ns = min(part.earliest_ns, arrival_ns), max(part.latest_ns, arrival_ns)
        part.is_alike = part.is_exact and part.earliest_ns == part.latest_ns
        shelf.least_text = min(shelf.least_text, text)

    cdef void lift(self, int32_t row) noexcept nogil:
        cdef Spot* spot = &self._spots[row]         # position on arrival: its tokens may have changed while it waited
        cdef Part* part = &self.parts[spot.shelf * MOST_PARTS + spot.part]
        cdef Shelf* shelf = &self.shelves[spot.shelf]
        cdef int32_t hole = self._places[row]
        cdef int64_t text = part.heap[hole].key
        self._places[row] = -1
        part.size -= 1
        shelf.size -= 1
        if hole < part.size:
            sift(part.heap, self._places, part.size, hole, part.heap[part.size])
        if shelf.size == 0:
            self.num_occupied -= 1
            self.occupied[shelf.place] = self.occupied[self.num_occupied]
            self.shelves[self.occupied[shelf.place]].place = shelf.place
        elif text == shelf.least_text:
            self._find_least_text(spot.shelf)
        self._note(~row)

    cdef void _find_least_text(self, int32_t shelf) noexcept nogil:
        cdef const Part* part
        cdef int64_t least = INT64_MAX
        cdef int32_t k
        for k in range(self.shelves[shelf].num_parts):
            part = self.part(shelf, k)
            if part.size > 0:
                least = min(least, part.heap[0].key)
        self.shelves[shelf].least_text = least

    cpdef int check(self) except -1:
        """Raise RuntimeError unless each row is at its spot and each heap is in order."""
        cdef int32_t i, k, place, size
        cdef const Part* part
        for i in range(MOST_SHELVES):
            size = 0
            for k in range(self.shelves[i].num_parts):
                part = self.part(i, k)
                size += part.size
                if not in_order(part.heap, part.size):
                    broken("Texts: a text is behind a longer one")
                for place in range(part.size):
                    if self._places[part.heap[place].index] != place:
                        broken("Texts: a row is not where its spot says")
                    if part.heap[place].key < self.shelves[i].least_text:
                        broken("Texts: a text is shorter than the shortest of its shelf")
            if size != self.shelves[i].size:
                broken("Texts: a shelf has not as many as its parts")
        return 0
