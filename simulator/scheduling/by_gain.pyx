"""Rank by a request's gain per token of its text, without evaluating all waiting requests.

Waiting requests are on shelves by tokens so far and length of text (`texts`). A policy computes the gain of a request,
and an upper bound of the gain on a shelf; a shelf on which no request can beat the best known one is skipped. The first
few are remembered for requests admitted at the same instant, so that the next place needs no search.

A policy sets `_running_weight` and, before each batch, `_is_tight`; it overrides `_gain_of` and `_most_of` (`andes`).
"""
from simulator.core.heap cimport Placed
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.texts cimport MOST_CHANGES, Shelf

cdef double ROUNDING = 1e-9         # of gains, with a wide margin


cdef class ByGain(Ranked):
    """The greatest gain per token of text goes first."""

    def __init__(self, parameters, context):
        Ranked.__init__(self, parameters, context)
        self._running_weight = 1.0
        self._gives_way = True
        self._found_ns = -1
        self._texts = Texts(context)
        self._rank_by(context, self._texts)

    cdef double _gain_of(self, double tokens, int64_t arrival_ns) noexcept nogil:
        return 0.0

    cdef double _most_of(self, int32_t tokens, int64_t earliest_ns, int64_t latest_ns) noexcept nogil:
        return 0.0

    cdef double _standing(self, int32_t row, int32_t slot) noexcept nogil:
        """Return the gain per token of the text, negated: the greatest goes first."""
        cdef double tokens = self._generated(slot) if slot >= 0 else self._requests[row].output_tokens
        cdef double gain = self._gain_of(tokens, self._requests[row].arrival_ns)
        if slot >= 0:
            gain *= self._running_weight
        return -gain / (self._requests[row].prompt_tokens + tokens)

    cdef void _stand(self) noexcept nogil:
        cdef const Sequence* sequence
        cdef double tokens, gain
        cdef int32_t i
        for i in range(self._in_line):
            sequence = &self._sequences[self._line[i].slot]
            tokens = self._generated(self._line[i].slot)
            gain = self._gain_of(tokens, self._requests[sequence.row].arrival_ns) * self._running_weight
            self._line[i].standing = -gain / (sequence.prompt_tokens + tokens)

    cdef int32_t _next_row(self) noexcept nogil:
        if not self._is_tight:
            return self.waiting.top()
        if self._found_ns == self._now_ns and self._texts.num_changes <= MOST_CHANGES:
            self._take_changes()
        if self._num_best == 0 or self._found_ns != self._now_ns or self._texts.num_changes > MOST_CHANGES:
            self._look()
            self._found_ns = self._now_ns
        self._texts.num_changes = 0
        return self._best[0].row

    cdef void _take_changes(self) noexcept nogil:
        """Update the best waiting requests with changes of the queue; requests ranked behind them are not known."""
        cdef int32_t i, k, row
        for i in range(self._texts.num_changes):
            row = self._texts.changes[i]
            if row >= 0 and self._num_best > 0 and self._goes_before(row, self._standing(row, -1), self._num_best - 1):
                self._offer(row, self._standing(row, -1))
            for k in range(self._num_best if row < 0 else 0):
                if self._best[k].row == ~row:
                    self._num_best -= 1
                    while k < self._num_best:
                        self._best[k] = self._best[k + 1]
                        k += 1
                    break

    cdef void _offer(self, int32_t row, double standing) noexcept nogil:
        """Insert a request into the best ones, in order, if it is among them."""
        cdef int32_t place = self._num_best, i
        for i in range(place):
            if self._best[i].row == row:
                return
        if place == MOST_BEST:
            place -= 1
            if not self._goes_before(row, standing, place):
                return
            self._seed(self._best[place].row)
        self._num_best = place + 1
        while place > 0 and self._goes_before(row, standing, place - 1):
            self._best[place] = self._best[place - 1]
            place -= 1
        self._best[place].row, self._best[place].standing = row, standing

    cdef void _seed(self, int32_t row) noexcept nogil:
        self._seeds[self._num_seeds % MOST_SEEDS] = row
        self._num_seeds += 1

    cdef void _look(self) noexcept nogil:
        """Find the best: among earlier candidates, then on the shelf with the best bound, then on the others."""
        cdef const Shelf* shelf
        cdef int32_t i, k, first = 0
        cdef int32_t[MOST_SEEDS] seeds
        for i in range(self._num_best):
            self._seed(self._best[i].row)
        self._num_best = 0
        seeds = self._seeds
        for i in range(<int32_t>min(self._num_seeds, MOST_SEEDS)):
            if self._texts.has(seeds[i]):
                self._offer(seeds[i], self._standing(seeds[i], -1))
        for k in range(self._texts.num_occupied):
            i = self._texts.occupied[k]
            shelf = &self._texts.shelves[i]
            self._most[i] = self._most_of(shelf.least_tokens, shelf.earliest_ns, shelf.latest_ns) + ROUNDING
            self._ahead[i] = -self._most[i] / <double>shelf.least_text
            if k == 0 or self._ahead[i] < self._ahead[first]:
                first = i
        self._look_at_shelf(first)
        for k in range(self._texts.num_occupied):
            i = self._texts.occupied[k]
            if i != first and self._may_be_best(self._ahead[i]):
                self._look_at_shelf(i)

    cdef void _look_at_shelf(self, int32_t i) noexcept nogil:
        cdef const Part* part
        cdef int32_t k
        for k in range(self._texts.shelves[i].num_parts):
            part = self._texts.part(i, k)
            if part.size > 0 and self._may_be_best(-self._most[i] / <double>part.heap[0].key):
                self._look_at(part, self._most_of(part.least_tokens, part.earliest_ns, part.latest_ns)
                              + (0.0 if part.is_alike else ROUNDING))

    cdef void _look_at(self, const Part* part, double most) noexcept nogil:
        """Search a part of a shelf on which no request gains more than `most`; exactly, if all gain alike.

        If the gain is 0, texts of any length have one standing, and only the order of arrival counts.
        """
        cdef int32_t place = 0, last = MOST_BEST - 1
        cdef double standing
        cdef const Placed* it
        while True:
            it = &part.heap[place]
            standing = -most / <double>it.key if place < part.size else 0.0
            if place < part.size and self._may_be_best(standing) and not (
                    part.is_alike and most > 0 and self._num_best == MOST_BEST
                    and standing == self._best[last].standing
                    and came_before(self._requests, self._demands, self._best[last].row, it.index)):
                if not part.is_alike or self._stale != NULL:    # else tokens are unchanged
                    standing = self._standing(it.index, -1)
                self._offer(it.index, standing)
                place = 2 * place + 1                           # its first child
                continue
            while place > 0 and place % 2 == 0:                 # a second child: its parent is done
                place = (place - 1) >> 1
            if place == 0:
                return
            place += 1

    cdef int _set_aside(self, int32_t row) except -1 nogil:
        self._texts.lift(row)
        return 0

    cdef int _end_looking(self) except -1 nogil:
        cdef int32_t i
        for i in range(self._placed.size):
            self._texts.put(self._placed.rows[i])
        return 0

    cdef int _take(self, int32_t row) except -1 nogil:
        self.waiting.remove(row)
        return 0

    def check(self):
        """See Scheduler."""
        Ranked.check(self)
        self._texts.check()
