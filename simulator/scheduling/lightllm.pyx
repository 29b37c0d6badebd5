"""`lightllm`: prompts are admitted if the predicted peak of KV fits, as in Vidur's LightLLM.

While requests decode, waiting prompts are considered after every `max_waiting_iters` batches of decodes, and computed
whole in a batch of their own. The prediction uses output lengths of [workload.output_knowledge], or without one the
client's max_tokens. Source: the behaviour of Vidur's scheduler "lightllm", microsoft/vidur at 7d47513,
replica_scheduler/lightllm_replica_scheduler.py, where lengths are known. Vidur ends a run that decodes without blocks,
which happens only if predicted lengths are too short: here the last admitted requests restart then. And a request
with a peak that never fits waits for ever in Vidur; here it is admitted if nothing else runs.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memmove, memset
cimport cython

from simulator.core.memory cimport resize
from simulator.domain.iteration cimport Batch
from simulator.domain.request cimport REJECTED
from simulator.scheduling.vidur cimport VidurScheduler

from typing import Annotated, ClassVar

from msgspec import Meta

from simulator.scheduling.base import SchedulerFacts
from simulator.scheduling.vidur import ALONE, VidurParameters


class LightllmParameters(VidurParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of Vidur's scheduler "lightllm", under its names."""

    ENGINE_DEFAULTS: ClassVar[dict] = {"block_size": 1}     # Vidur's scheduler counts tokens

    max_tokens_in_batch: Annotated[int, Meta(ge=1, le=2**31 - 1, extra={"unit": "tokens"}, description=(
        "tokens in a batch of prompts, at most; a longer prompt is refused"))] = 4096
    max_waiting_iters: Annotated[int, Meta(ge=1, le=2**31 - 1, description=(
        "batches of decodes before waiting prompts are considered again"))] = 10

    @property
    def reads_expected_tokens(self):
        """Return whether predictions of output lengths matter."""
        return True


cdef struct Course:                     # predicted course of a request
    int64_t have                        # tokens in KV, once its next batch is computed
    int64_t left                        # turns after that
    int64_t order                       # admission stamp, see Sequence
    int32_t slot                        # -1: not admitted yet


@cython.final
cdef class Lightllm(VidurScheduler):
    """Batches of prompts between runs of decodes; see `LightllmParameters`."""

    Parameters = LightllmParameters

    cdef int64_t _max_tokens            # max_tokens_in_batch
    cdef int64_t _max_waits             # max_waiting_iters
    cdef int64_t _since                 # the iteration after the last batch of prompts
    cdef Course* _courses               # [_num_courses] by turns left, most first, at the last check
    cdef int32_t _num_courses
    cdef int32_t _room_of_courses
    cdef int64_t _have                  # tokens in KV of all courses
    cdef int64_t* _seen                 # [_num_seen] by slot: the last check at which it ran and was not listed
    cdef int32_t _num_seen
    cdef int64_t _looks                 # checks so far

    def __init__(self, parameters, context):
        self.share(parameters.batch_size_cap, 0.0, 0, context)
        self._max_tokens = parameters.max_tokens_in_batch
        self._max_waits = parameters.max_waiting_iters

    def __dealloc__(self):
        free(self._courses)
        free(self._seen)

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return SchedulerFacts(parameters.batch_size_cap, max(parameters.max_tokens_in_batch, parameters.batch_size_cap),
                              takes_threads=True, takes_stages=False, why_no_tier=ALONE)

    @staticmethod
    def faults(parameters, engine):
        """See Scheduler."""
        if engine.block_size == 1:
            return ()
        return [("block_size", f'expected 1, since "lightllm" counts KV in tokens, found {engine.block_size}')]

    def limits(self):
        """See Scheduler."""
        own = self._max_tokens, f"are longer than max_tokens_in_batch = {self._max_tokens:,}"
        return own, *VidurScheduler.limits(self)

    cdef int8_t refusal(self, int32_t row) noexcept nogil:
        return REJECTED if self._requests[row].prompt_tokens > self._max_tokens else VidurScheduler.refusal(self, row)

    cdef int64_t longest_surely_taken(self) noexcept nogil:
        return min(self._max_tokens, VidurScheduler.longest_surely_taken(self))

    cdef bint keeps_turns(self) noexcept nogil:
        return False                    # arriving prompts take turns from decodes

    cdef bint repeats(self) noexcept nogil:
        return self.waiting.size == 0 or self._running.size >= self.max_running

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        self.begin_batch(batch, now_ns)
        if self._looks_at_prompts():
            self._admit_prompts(batch)
        if self._size > 0:
            self.pass_over(batch)
        elif self.num_members < self._running.size or not self.decode_all(batch):
            self.gather_at_hand()
            self._decode(batch)
            self.fill(batch)
        self.close(batch, -1)
        return 0

    cdef bint _looks_at_prompts(self) noexcept nogil:
        cdef int64_t waits = self.iteration - self._since
        return self.has_place() and (self._running.size == 0 or (waits > 0 and waits % self._max_waits == 0))

    cdef int _decode(self, Batch* batch) except -1 nogil:
        cdef int32_t i = 0, slot
        cdef int64_t tokens
        while i < self._count:
            slot = self._at_hand[i]
            tokens = 1 if self._sequences[slot].is_member else (
                self._sequences[slot].num_tokens - self._sequences[slot].num_computed)
            self.continue_at(batch, i, tokens, self.computed(slot) + tokens)
            i += 1
        return 0

    # ---- prompts

    cdef int _admit_prompts(self, Batch* batch) except -1 nogil:
        cdef int64_t tokens = 0, text
        cdef int32_t row, course
        self._list_courses()
        while self.has_place():
            row, text = self.waiting.top(), self.head_text()
            if tokens + text > self._max_tokens and not (tokens == 0 and self._requests[row].output_tokens > 0):
                break
            course = self._add_course(text + 1, self._left_of(row, self._requests[row].output_tokens + 1))
            if self._running.size > 0 and not self._peak_fits():
                break
            if not self.admit_head(batch, text, text):
                break
            self.add_entry(batch, self._running.tail)
            self._name_course(course, self._running.tail)
            tokens += text
        if self._size > 0:
            self._since = self.iteration            # this batch is not counted
        return 0

    cdef int64_t _left_of(self, int32_t row, int64_t outputs) noexcept nogil:
        """Return the turns of a request after its next one, if it has `outputs` output tokens now."""
        cdef int64_t expected = self._demands[row].expected_tokens
        if expected < 0:
            expected = min(<int64_t>self._demands[row].max_tokens, self._max_model_len)
        return max(expected - outputs - 1, <int64_t>0)

    cdef int _list_courses(self) except -1 nogil:
        """List running requests: known ones first, which are almost sorted, since all advance alike."""
        cdef int32_t slot = self._running.head, known = self._num_courses, i
        self._make_room()
        self._looks += 1
        while slot >= 0:
            self._seen[slot] = self._looks
            slot = self._links.next(slot)
        self._num_courses = self._have = 0
        for i in range(known):
            slot = self._courses[i].slot
            if slot >= 0 and self._seen[slot] == self._looks and (
                    self._courses[i].order == self._sequences[slot].order):
                self._seen[slot] = 0
                self._list_course(slot)
        slot = self._running.tail                   # all other requests were admitted later
        while slot >= 0 and self._seen[slot] == self._looks:
            self._list_course(slot)
            slot = self._links.prev(slot)
        return 0

    cdef int _make_room(self) except -1 nogil:
        cdef int32_t need = max(self._running.size + self.waiting.size, self._num_courses)
        if self._room_of_courses < need:
            self._room_of_courses = 2 * need
            resize(&self._courses, self._room_of_courses * sizeof(Course))
        if self._num_seen < self.num_slots:
            resize(&self._seen, self.num_slots * sizeof(int64_t))
            memset(self._seen + self._num_seen, 0, (self.num_slots - self._num_seen) * sizeof(int64_t))
            self._num_seen = self.num_slots
        return 0

    cdef void _list_course(self, int32_t slot) noexcept nogil:
        cdef int32_t row = self._sequences[slot].row
        cdef int64_t have = self.computed(slot) + 1
        self._name_course(self._add_course(have, self._left_of(row, have - self._requests[row].prompt_tokens)), slot)

    cdef int32_t _add_course(self, int64_t have, int64_t left) noexcept nogil:
        """Insert a course without a slot; return its index, valid until the next insertion."""
        cdef int32_t i = self._num_courses
        while i > 0 and self._courses[i - 1].left < left:
            i -= 1
        if i < self._num_courses:
            memmove(&self._courses[i + 1], &self._courses[i], (self._num_courses - i) * sizeof(Course))
        self._courses[i].have, self._courses[i].left, self._courses[i].slot = have, left, -1
        self._num_courses += 1
        self._have += have
        return i

    cdef inline void _name_course(self, int32_t i, int32_t slot) noexcept nogil:
        self._courses[i].slot, self._courses[i].order = slot, self._sequences[slot].order

    cdef bint _peak_fits(self) noexcept nogil:
        """Return whether the predicted peak of KV tokens fits.

        When a request ends, `left` turns from now, requests that last as long or longer have gained `left` tokens each.
        """
        cdef int64_t have = 0
        cdef int32_t i
        if self._courses[0].left * self._num_courses + self._have < self.kv.num_blocks:
            return True                             # even if all requests lasted as long as the longest
        for i in range(self._num_courses):
            have += self._courses[i].have
            if self._courses[i].left * (i + 1) + have >= self.kv.num_blocks:
                return False
        return True
