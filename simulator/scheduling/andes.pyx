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

from simulator.core.index_heap cimport IndexHeap, Waiting
from simulator.scheduling.lane cimport came_before
from simulator.scheduling.ranked cimport Ranked
from simulator.scheduling.texts cimport MOST_SHELVES, Shelf, Texts

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.ranked import RankedParameters


cdef double ROUNDING = 1e-9         # of gains, by far

cdef struct Best:               # of those looked at
    int32_t row                 # -1: nobody yet
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
    cdef double[MOST_SHELVES] _most     # [num_shelves] that one of a shelf gains now, at most
    cdef int64_t _bounds_ns             # when these were noted, of so many that have come
    cdef int64_t _num_bounded
    cdef int64_t _found_ns              # when this row was next
    cdef int32_t _found
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
        self._bounds_ns = self._found_ns = -1
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

    cdef int32_t _next_row(self) noexcept nogil:
        cdef Best best
        cdef int32_t i
        if not self._is_tight:
            return self.waiting.top()
        if self._found_ns == self._now_ns and not self._texts.has_changed:
            return self._found
        if self._bounds_ns != self._now_ns or self._texts.num_came != self._num_bounded:
            self._bound()
        best.row, best.standing = -1, 0.0
        for i in range(self._texts.num_shelves):
            self._look_at(<IndexHeap>self._texts.heaps[i], self._most[i], self._texts.shelves[i].is_alike, &best)
        self._found, self._found_ns, self._texts.has_changed = best.row, self._now_ns, False
        return best.row

    cdef void _bound(self) noexcept nogil:
        """Note what somebody of each shelf may gain at most.

        With n tokens and S in a horizon, the gain rises with E up to 2n + S, and falls from there.
        """
        cdef const Shelf* shelf
        cdef double expected
        cdef int32_t i
        for i in range(self._texts.num_shelves):
            shelf = &self._texts.shelves[i]
            expected = min(max(2.0 * shelf.least_tokens + self._served_tokens, self._expected(shelf.latest_ns)),
                           self._expected(shelf.earliest_ns))
            self._most[i] = self._gain(shelf.least_tokens, expected) + (0.0 if shelf.is_alike else ROUNDING)
        self._bounds_ns, self._num_bounded = self._now_ns, self._texts.num_came

    cdef void _look_at(self, IndexHeap heap, double most, bint is_alike, Best* best) noexcept nogil:
        """Look for a better one where nobody gains more; where all gain the same, nobody in vain.

        Where all gain nothing, texts of any length stand alike, and only who came first counts.
        """
        cdef int32_t place = 0
        cdef double standing
        cdef const Waiting* it
        while True:
            it = heap.at(place)
            standing = -most / <double>it.priority if place < heap.size else 0.0
            if place < heap.size and (best.row < 0 or standing < best.standing or standing == best.standing and not (
                    is_alike and most > 0 and came_before(self._requests, self._demands, best.row, it.row))):
                standing = self._standing(it.row, -1)
                if best.row < 0 or standing < best.standing or (
                        standing == best.standing and came_before(self._requests, self._demands, it.row, best.row)):
                    best.row, best.standing = it.row, standing
                place = 2 * place + 1                           # its first child
                continue
            while place > 0 and place % 2 == 0:                 # a second child: its parent is done
                place = (place - 1) >> 1
            if place == 0:
                return
            place += 1

    cdef int _take(self, int32_t row) except -1 nogil:
        self.waiting.remove(row)
        return 0


cdef double qoe(double tokens, double expected) noexcept nogil:
    """Return the quality of experience with so many tokens of those expected by then; 1 where none are expected."""
    cdef double lacking = expected - tokens
    return 1.0 if lacking <= 0 else 1.0 - (lacking / expected) * (lacking / expected)
