"""`andes`: quality of experience (QoE): tokens where readers lack them the most.

A reader expects the first token `expected_ttft_s` after the request came, and from then on `tokens_per_s`: E(t)
tokens by t. With n tokens by then, of which those so far count as if they had been in time, QoE(n, t) = 1 - ((E - n)
/ E)^2, the delayed part of the area under E, or 1 where n >= E(t). What it gains by being served for the next
`horizon_s`, in which it would have a token each `token_latency_ms`, is QoE(n + horizon / latency) - QoE(n), both at
the end of that; for one that runs `running_bonus` more, for what its place cost. Its priority is the gain for each
token of its text.

Where not all have a place in the running list, or those that run and the texts of those that wait take up
`kv_watermark` of the blocks, the highest priority goes first, and who waits takes the places and blocks of those that
run at lower ones: the greedy packing of the paper. Otherwise requests go as they came. In all there are at most
`preemptions_per_request` for a place, for each request that came. Who has waited for much longer than `horizon_s`
gains little, and may wait until the others are through.

Source: Liu et al., Andes: Defining and Enhancing Quality-of-Experience in LLM-Based Text Streaming Services, arXiv
2404.16283: QoE, priority, packing, selective triggering, preemption cap. The QoE of a triangle, the bonus, horizon,
latency and watermark are those of its code, AmberLJC/vllm-0.6.1, vllm/core/andes_utils. That readers wait 1 s for the
first token, and one preemption a request, are defaults of ours; 4.8 tokens a second are 220 words a minute, at 1.3
tokens a word. Known to differ:

- The code ranks before each tenth iteration, goes by the blocks held alone, and lets E begin when a request comes;
  the paper looks for the best of several batch sizes, each with a latency of its own, and weighs the costs of a
  preemption.
- Who is preempted is computed again, as the code does by default; the paper also swaps KV to host memory.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.index_heap cimport Waiting
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.lane cimport came_before
from simulator.scheduling.ranked cimport Ranked
from simulator.scheduling.texts cimport MOST_CHANGES, MOST_SHELVES, Part, Shelf, Texts

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.ranked import RankedParameters


cdef double ROUNDING = 1e-9         # of gains, by far

cdef enum:
    MOST_BEST = 4               # who is next, and who is when that one has found a place
    MOST_SEEDS = 8

cdef struct Best:               # of those that wait
    int32_t row
    double standing


class AndesParameters(RankedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, and what readers expect."""

    expected_ttft_s: Annotated[float, Meta(ge=0, le=1e6, description="seconds until a reader wants to begin")] = 1.0
    tokens_per_s: Annotated[float, Meta(gt=0, le=1e6, description="that a reader takes in")] = 4.8
    token_latency_ms: Annotated[float, Meta(gt=0, le=1e6, description="ms between tokens of who is served")] = 50.0
    horizon_s: Annotated[float, Meta(gt=0, le=1e6, description="seconds over which gains count")] = 50.0
    running_bonus: Annotated[float, Meta(ge=0, le=1000, description="by this share gains of who runs count more")] = 0.5
    kv_watermark: Annotated[float, Meta(ge=0, le=1, description=(
        "share of KV blocks that all requests would take up from which on priorities count"))] = 0.9
    preemptions_per_request: Annotated[float, Meta(ge=0, le=1e6, description="for a place, on average, at most")] = 1.0


@cython.final
cdef class Andes(Ranked):
    """The greatest gain of experience for its KV first; see `AndesParameters`."""

    Parameters = AndesParameters

    cdef Texts _texts
    cdef double _ttft_ns, _tokens_per_ns, _horizon_ns, _served_tokens, _running_weight, _watermark, _cap
    cdef int64_t _num_came              # requests, so far
    cdef double[MOST_SHELVES] _most     # [shelf] that one gains now, at most
    cdef double[MOST_SHELVES] _ahead    # [shelf] where one stands now, at best
    cdef Best[MOST_BEST] _best          # [_num_best] the first of those that wait, in order, as of `_found_ns`
    cdef int32_t _num_best
    cdef int64_t _found_ns
    cdef int32_t[MOST_SEEDS] _seeds     # rows that were among them
    cdef int64_t _num_seeds
    cdef bint _is_tight                 # priorities count in the batch being formed

    def __init__(self, parameters, context):
        Ranked.__init__(self, parameters, context)
        self._ttft_ns = parameters.expected_ttft_s * 1e9
        self._tokens_per_ns = parameters.tokens_per_s * 1e-9
        self._horizon_ns = parameters.horizon_s * 1e9
        self._served_tokens = parameters.horizon_s * 1e3 / parameters.token_latency_ms
        self._running_weight = 1 + parameters.running_bonus
        self._watermark, self._cap = parameters.kv_watermark, parameters.preemptions_per_request
        self._gives_way = True
        self._found_ns = -1
        self._texts = Texts(context)
        self._rank_by(context, self._texts)

    cdef int enqueue(self, int32_t row) except -1 nogil:
        self._num_came += 1
        return Ranked.enqueue(self, row)

    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil:
        cdef int64_t held = <int64_t>(self.kv.num_blocks - self.kv.free_blocks) * self.kv.block_size
        cdef int64_t tokens = held + self.waiting.tokens
        self._is_tight = (self._running.size + self.waiting.size > self.max_running
                          or <double>tokens >= self._watermark * <double>self.kv.num_blocks * self.kv.block_size)
        self._may_give_way = 0
        if self._is_tight:
            self._may_give_way = <int64_t>(self._cap * <double>self._num_came) - self._given_way
        return 0

    cdef double _expected(self, int64_t arrival_ns) noexcept nogil:
        """Return the tokens that one who came then expects at the end of the horizon."""
        return self._tokens_per_ns * (<double>(self._now_ns - arrival_ns) + self._horizon_ns - self._ttft_ns)

    cdef double _gain(self, double tokens, double expected) noexcept nogil:
        return qoe(tokens + self._served_tokens, expected) - qoe(tokens, expected)

    cdef double _standing(self, int32_t row, int32_t slot) noexcept nogil:
        """Return the gain for each token of the text, negative: the greatest goes first."""
        cdef double expected = self._expected(self._requests[row].arrival_ns)
        cdef double tokens = self._generated(slot) if slot >= 0 else self._requests[row].output_tokens
        cdef double gain = self._gain(tokens, expected) * (self._running_weight if slot >= 0 else 1.0)
        return -gain / (self._requests[row].prompt_tokens + tokens)

    cdef void _stand(self) noexcept nogil:
        cdef const Sequence* sequence
        cdef double tokens, gain
        cdef int32_t i
        for i in range(self._in_line):
            sequence = &self._sequences[self._line[i].slot]
            tokens = self._generated(self._line[i].slot)
            gain = self._gain(tokens, self._expected(self._requests[sequence.row].arrival_ns)) * self._running_weight
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
        """Bring the first of those that wait up to date; behind them nobody is known, and somebody may be."""
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

    cdef inline bint _goes_before(self, int32_t row, double standing, int32_t place) noexcept nogil:
        cdef const Best* other = &self._best[place]
        return standing < other.standing or (
            standing == other.standing and came_before(self._requests, self._demands, row, other.row))

    cdef void _offer(self, int32_t row, double standing) noexcept nogil:
        """Put one among the best, where it belongs, if it does."""
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

    cdef inline void _seed(self, int32_t row) noexcept nogil:
        self._seeds[self._num_seeds % MOST_SEEDS] = row
        self._num_seeds += 1

    cdef void _look(self) noexcept nogil:
        """Look for the best: among those of before, then where somebody may be the very best, then elsewhere."""
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

    cdef inline bint _may_be_best(self, double standing) noexcept nogil:
        return self._num_best < MOST_BEST or standing <= self._best[MOST_BEST - 1].standing

    cdef double _most_of(self, int32_t tokens, int64_t earliest_ns, int64_t latest_ns) noexcept nogil:
        """Return what somebody may gain at most with so many tokens or more, who came then or in between.

        With n tokens and S in a horizon, the gain rises with E up to 2n + S, and falls from there.
        """
        cdef double expected = self._expected(latest_ns)
        if earliest_ns < latest_ns:
            expected = min(max(2.0 * tokens + self._served_tokens, expected), self._expected(earliest_ns))
        return self._gain(tokens, expected)

    cdef void _look_at_shelf(self, int32_t i) noexcept nogil:
        cdef const Part* part
        cdef int32_t k
        for k in range(self._texts.shelves[i].num_parts):
            part = self._texts.part(i, k)
            if part.size > 0 and self._may_be_best(-self._most[i] / <double>part.heap[0].priority):
                self._look_at(part, self._most_of(part.least_tokens, part.earliest_ns, part.latest_ns)
                              + (0.0 if part.is_alike else ROUNDING))

    cdef void _look_at(self, const Part* part, double most) noexcept nogil:
        """Look for better ones where nobody gains more; where all gain the same, nobody in vain.

        Where all gain nothing, texts of any length stand alike, and only who came first counts.
        """
        cdef int32_t place = 0, last = MOST_BEST - 1
        cdef double standing
        cdef const Waiting* it
        while True:
            it = &part.heap[place]
            standing = -most / <double>it.priority if place < part.size else 0.0
            if place < part.size and self._may_be_best(standing) and not (
                    part.is_alike and most > 0 and self._num_best == MOST_BEST
                    and standing == self._best[last].standing
                    and came_before(self._requests, self._demands, self._best[last].row, it.row)):
                if not part.is_alike or self._stale != NULL:    # else nobody's tokens have come meanwhile
                    standing = self._standing(it.row, -1)
                self._offer(it.row, standing)
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


cdef double qoe(double tokens, double expected) noexcept nogil:
    """Return the quality of experience with so many tokens of those expected by then; 1 where none are expected."""
    cdef double lacking = expected - tokens
    return 1.0 if lacking <= 0 else 1.0 - (lacking / expected) * (lacking / expected)
