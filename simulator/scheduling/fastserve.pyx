"""`fastserve`: a skip-join multi-level feedback queue, with preemption between iterations.

Queue i has a quantum of `quantum_ms` x `quantum_ratio`^i. A request joins the first queue whose quantum its prompt fits
in, and those before are skipped; who has held its place for the quantum of its queue sinks to the next one. The first
queues go first, each in order of arrival: who waits takes the place, or the KV blocks, of who runs in a later queue.
Within a queue nobody gives way, so that of two requests each is preempted for the other once a quantum, and quanta grow.
Who has waited for `starvation_s` rises to the first queue, and begins anew there.

The time of a prompt is `prefill_us_per_token` for each of its tokens, or what iterations have shown: the least time a
token of a prompt that one with prompts has taken so far; before there is one, 0.

Source: Wu et al., Fast Distributed Inference Serving for Large Language Models, arXiv 2305.05920, section 4.1 (skip-join
MLFQ) and 4.2 (starvation), which knows the times of prompts from a profile. Defaults are those of its code,
LLMServe/FastServe, fastserve/scheduler.py: 10 ms, twice as long each, 3 s. Known to differ:

- KV of who is preempted goes to host memory there, ahead of time too, and comes back; here it is computed again.
- Who runs keeps its place beside later ones where there is room, and prompts may come in chunks; a request has spent its
  quantum by the time in its place, not by that of its iterations, and one that overshoots has less of the next.
- Starvation is looked for before each iteration, there before each thousandth.
"""
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.core.index_heap cimport IndexHeap
from simulator.domain.iteration cimport Batch
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.ranked cimport Ranked, RequestRanking

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from simulator.scheduling.ranked import RankedParameters

cdef enum:
    LAST_QUEUE = 62             # nobody sinks deeper


class FastserveParameters(RankedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, and the quanta of the queues."""

    quantum_ms: Annotated[float, Meta(gt=0, le=1e6, description="of the first queue, in ms")] = 10.0
    quantum_ratio: Annotated[float, Meta(ge=1, le=1000, description="of a quantum to that of the queue before")] = 2.0
    starvation_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "seconds after which one that waits rises to the first queue"))] = 3.0
    prefill_us_per_token: Annotated[Annotated[float, Meta(ge=0, le=1e9)] | None, Meta(description=(
        "time of a prompt, by which it skips queues; absent: as iterations show"))] = None


cdef struct Progress:
    int64_t since_ns            # it has its place, or waits, since then; -1: it came running, and was not looked at yet
    int64_t spent_ns            # of the quantum of its queue, before that
    int8_t queue


@cython.final
cdef class Queues(RequestRanking):
    """Keys are numbers of queues; who waits is also kept by the instant since when."""

    cdef Progress* progress             # [row]
    cdef IndexHeap longest              # those that wait, the longest first

    def __init__(self, context):
        self.longest = IndexHeap()
        self.progress = <Progress*>calloc(len(context.requests) + 1, sizeof(Progress))
        if self.progress == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.progress)

    cdef int64_t key(self, int32_t row) noexcept nogil:
        return self.progress[row].queue

    cdef void count(self, int32_t row, int32_t change) noexcept nogil:
        if change > 0:
            self.longest.push(row, self.progress[row].since_ns, 0, self.demands[row].tie_rank)
        else:
            self.longest.remove(row)


@cython.final
cdef class Fastserve(Ranked):
    """The first queue first, and quanta that double; see `FastserveParameters`."""

    Parameters = FastserveParameters

    cdef Queues _queues
    cdef int64_t[63] _quanta_ns         # LAST_QUEUE + 1 of them
    cdef int64_t _starvation_ns
    cdef double _ns_per_token           # of prompts
    cdef bint _learns, _has_learned, _had_prompts
    cdef int64_t _now_ns                # of the batch formed last

    def __init__(self, parameters, context):
        Ranked.__init__(self, parameters, context)
        cdef int32_t i
        for i in range(LAST_QUEUE + 1):
            self._quanta_ns[i] = round(min(parameters.quantum_ms * 1e6 * parameters.quantum_ratio**i, 9e18))
        self._starvation_ns = round(parameters.starvation_s * 1e9)
        self._learns = parameters.prefill_us_per_token is None
        self._ns_per_token = 0.0 if self._learns else parameters.prefill_us_per_token * 1e3
        self._gives_way = True
        self._queues = Queues(context)
        self._rank_by(context, self._queues)

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return replace(Ranked.facts(parameters), takes_stages=False)    # it goes by the batch that ended last

    # ---- queues

    cdef int enqueue(self, int32_t row) except -1 nogil:
        cdef Progress* it = &self._queues.progress[row]
        it.since_ns, it.spent_ns, it.queue = self._requests[row].enqueued_ns, 0, 0
        while it.queue < LAST_QUEUE and self._quanta_ns[it.queue] < self._ns_per_token * self._requests[row].prompt_tokens:
            it.queue += 1
        return Ranked.enqueue(self, row)

    cdef Progress _at(self, int32_t row) noexcept nogil:
        """Return the progress of one that runs, now: as many quanta later as it has spent."""
        cdef Progress it = self._queues.progress[row]
        it.spent_ns += self._now_ns - it.since_ns
        it.since_ns = self._now_ns
        while it.queue < LAST_QUEUE and it.spent_ns > self._quanta_ns[it.queue]:
            it.spent_ns -= self._quanta_ns[it.queue]
            it.queue += 1
        return it

    cdef double _standing(self, int32_t row, int32_t slot) noexcept nogil:
        if slot >= 0 and self._queues.progress[row].since_ns < 0:
            self._queues.progress[row].since_ns = self._now_ns
        return self._at(row).queue if slot >= 0 else self._queues.progress[row].queue

    cdef int preempt(self, int32_t slot, Batch* batch) except -1 nogil:
        cdef int32_t row = self._sequences[slot].row
        self._queues.progress[row] = self._at(row)
        return Ranked.preempt(self, slot, batch)

    cdef int receive(self, int32_t slot, const Sequence* sequence) except -1 nogil:
        cdef Progress* it = &self._queues.progress[sequence.row]
        it.since_ns, it.spent_ns, it.queue = -1, 0, 0
        return Ranked.receive(self, slot, sequence)

    cdef int _take(self, int32_t row) except -1 nogil:
        Ranked._take(self, row)
        self._queues.progress[row].since_ns = self._now_ns
        return 0

    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil:
        cdef Progress* it
        cdef int32_t row
        self._now_ns = now_ns
        while self._queues.longest.size > 0:
            row = self._queues.longest.top()
            it = &self._queues.progress[row]
            if now_ns - it.since_ns < self._starvation_ns:
                break
            self.waiting.remove(row)
            it.since_ns, it.spent_ns, it.queue = now_ns, 0, 0
            self.waiting.push(row)
        return 0

    # ---- times of prompts

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        if self._learns and self._had_prompts and batch.duration_ns > 0:
            self._learn(<double>batch.duration_ns / <double>batch.shape.prefill_tokens)
        Ranked.schedule(self, batch, now_ns)
        self._had_prompts = batch.shape.prefill_tokens > 0      # such a batch is never repeated
        return 0

    cdef void _learn(self, double ns_per_token) noexcept nogil:
        self._ns_per_token = min(self._ns_per_token, ns_per_token) if self._has_learned else ns_per_token
        self._has_learned = True

    cdef void forget(self) noexcept nogil:
        self._had_prompts = False
        if self._learns:
            self._ns_per_token, self._has_learned = 0.0, False
        Ranked.forget(self)
