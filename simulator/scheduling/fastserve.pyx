"""`fastserve`: a skip-join multi-level feedback queue, with preemption between iterations.

Queue i has a quantum of `quantum_ms` x `quantum_ratio`^i. A request joins the first queue with a quantum that its
prompt fits in, skipping those before; a request that has held its place for its queue's quantum sinks to the next
queue. The first queues go first, each in order of arrival: a waiting request takes the place, or the KV blocks, of a
running one in a later queue, not in its own: two requests preempt each other once a quantum, and quanta grow. A
request that has waited for `starvation_s` rises to the first queue, and begins a new quantum there.

The time of a prompt is `prefill_us_per_token` for each of its tokens, or an estimate from iterations: the least time
per prompt token of an iteration with prompts so far; before the first one, 0.

Source: Wu et al., Fast Distributed Inference Serving for Large Language Models, arXiv 2305.05920:
skip-join MLFQ and starvation; it knows the times of prompts from a profile. Defaults are those of its
code, LLMServe/FastServe, fastserve/scheduler.py: 10 ms, each quantum twice the one before, 3 s. Known differences:

- There KV of preempted requests goes to host memory, ahead of time too, and is reloaded; here it is recomputed.
- A running request keeps its place beside later ones where there is room, and prompts may be chunked; a quantum is
  spent by time in the place, not by time of iterations, and an overshoot is deducted from the next quantum.
- Starvation is checked before each iteration, there before each thousandth.
"""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.iteration cimport Batch
from simulator.scheduling.base cimport Sequence
from simulator.scheduling.feedback_queues cimport FeedbackQueues
from simulator.scheduling.ranked cimport Ranked, Stand

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.ranked import RankedParameters


class FastserveParameters(RankedParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a batch, and the quanta of the queues."""

    quantum_ms: Annotated[float, Meta(gt=0, le=1e6, description="quantum of the first queue, in ms")] = 10.0
    quantum_ratio: Annotated[float, Meta(ge=1, le=1000, description="ratio of a quantum to the one before")] = 2.0
    starvation_s: Annotated[float, Meta(gt=0, le=1e6, description=(
        "seconds after which a waiting request rises to the first queue"))] = 3.0
    prefill_us_per_token: Annotated[Annotated[float, Meta(ge=0, le=1e9)] | None, Meta(description=(
        "time per prompt token, by which a request skips queues; absent: estimated from iterations"))] = None


@cython.final
cdef class Fastserve(Ranked):
    """The first queue first, and quanta that double; see `FastserveParameters`."""

    Parameters = FastserveParameters

    cdef FeedbackQueues _queues
    cdef int64_t _starvation_ns
    cdef double _ns_per_token           # time of a prompt token
    cdef bint _has_learned

    def __init__(self, parameters, context):
        Ranked.__init__(self, parameters, context)
        self._starvation_ns = round(parameters.starvation_s * 1e9)
        self._learns = parameters.prefill_us_per_token is None
        self._ns_per_token = 0.0 if self._learns else parameters.prefill_us_per_token * 1e3
        self._gives_way = True
        self._queues = FeedbackQueues(context, parameters.quantum_ms * 1e6, parameters.quantum_ratio)
        self._rank_by(context, self._queues)

    cdef int enqueue(self, int32_t row) except -1 nogil:
        self._queues.join(row, self._requests[row].enqueued_ns, self._ns_per_token * self._requests[row].prompt_tokens)
        return Ranked.enqueue(self, row)

    cdef double _standing(self, int32_t row, int32_t slot) noexcept nogil:
        return self._queues.at(row, self._now_ns).queue if slot >= 0 else self._queues.key(row)

    cdef void _stand(self) noexcept nogil:
        cdef int32_t i
        cdef Stand* it
        for i in range(self._in_line):
            it = &self._stands[self._line[i].slot]
            if it.order != self._line[i].order:
                it.order = self._line[i].order
                it.queue = self._queues.first_end(self._sequences[self._line[i].slot].row, &it.until_ns)
            while it.until_ns < self._now_ns:
                it.queue += 1
                it.until_ns = self._queues.next_end(it.queue, it.until_ns)
            self._line[i].standing = it.queue

    cdef int32_t _next_row(self) noexcept nogil:
        return self._next_beside()

    cdef int preempt(self, int32_t slot, Batch* batch) except -1 nogil:
        self._queues.note(self._sequences[slot].row, self._now_ns)
        return Ranked.preempt(self, slot, batch)

    cdef int receive(self, int32_t slot, const Sequence* sequence) except -1 nogil:
        self._queues.join(sequence.row, self._now_ns, 0.0)
        return Ranked.receive(self, slot, sequence)

    cdef int _take(self, int32_t row) except -1 nogil:
        Ranked._take(self, row)
        self._queues.progress[row].since_ns = self._now_ns
        return 0

    cdef int _begin_batch(self, int64_t now_ns) except -1 nogil:
        cdef int32_t row = self._queues.starving(now_ns - self._starvation_ns)
        while row >= 0:
            self.waiting.remove(row)
            self._queues.join(row, now_ns, 0.0)
            self.waiting.push(row)
            row = self._queues.starving(now_ns - self._starvation_ns)
        return 0

    cdef void _learn(self, const Batch* batch) noexcept nogil:
        cdef double ns_per_token = <double>batch.duration_ns / <double>batch.shape.prefill_tokens
        self._ns_per_token = min(self._ns_per_token, ns_per_token) if self._has_learned else ns_per_token
        self._has_learned = True

    cdef void forget(self) noexcept nogil:
        if self._learns:
            self._ns_per_token, self._has_learned = 0.0, False
        Ranked.forget(self)
