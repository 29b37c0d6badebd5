"""Base class for schedulers written in Python: slow, but the shortest way to try an idea.

A subclass inspects requests (`LocalRequest`) and schedules them by calls to a `NextBatch`, which checks each call:
no call of a subclass can make blocks and sequences inconsistent.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.domain.batch cimport clear_shape
from simulator.domain.iteration cimport Batch
from simulator.kv.base cimport blocks_for
from simulator.scheduling.base cimport Scheduler, Sequence
from simulator.scheduling.waiting_queue cimport FIRST_COME, WaitingQueue
from simulator.signals.request_view cimport RequestView

import operator
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator.scheduling.contract import SchedulerFacts


class PythonSchedulerParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys that the engine needs of any scheduler; a subclass adds its own."""

    max_num_seqs: Annotated[int, Meta(ge=1, le=2**20, description="sequences in a batch")] = 256
    max_num_batched_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1, description="tokens in a batch")] = 8192


cdef class PythonScheduler(Scheduler):
    """Base of schedulers written in Python: override `form_batch`.

    The experiment names the subclass: `scheduler = "my_lab:ShortestFirst"`. For keys of its own in [engine], set the
    class attribute `Parameters` to a frozen subclass of `PythonSchedulerParameters`: they are read, checked and passed
    on.

        class OneByOne(PythonScheduler):
            def form_batch(self, batch, now_ns):
                for request in batch.running or batch.waiting[:1]:
                    batch.run(request) if request.is_running else batch.admit(request)

    Each iteration costs some microseconds, and more for each request inspected. True output lengths, which an engine
    cannot know, are not shown. An exception ends the simulation.
    """

    Parameters = PythonSchedulerParameters

    cdef readonly object parameters     # the keys of [engine], an instance of `Parameters`
    cdef readonly int64_t max_batched_tokens    # tokens in a batch, at most
    cdef object _context                # ReplicaContext
    cdef dict _views                    # row -> LocalRequest
    cdef NextBatch _next                # reused for each call
    cdef Batch* _batch                  # while form_batch runs: the batch being formed; else NULL
    cdef int64_t _turn                  # calls of form_batch so far
    cdef int64_t _listed                # turn in which the waiting requests were last listed and marked
    cdef int64_t _budget                # tokens left in the batch being formed
    cdef int32_t _num_preempted         # by the batch being formed

    def __cinit__(self, parameters, context, *_, **__):     # here, so that no __init__ can forget it
        if context.num_stages > 1:
            raise ValueError(f"{type(self).__name__} knows no pipeline stages: expected 1, found {context.num_stages}")
        self.parameters, self._context = parameters, context
        self.max_running = parameters.max_num_seqs
        self.max_batched_tokens = parameters.max_num_batched_tokens
        self.longest_prompt = context.max_model_len - 1
        self.grouping = False
        self.waiting = WaitingQueue(context.requests, context.demands, FIRST_COME)
        self._views = {}
        self._next = NextBatch.__new__(NextBatch)
        self._next.scheduler = self

    def __init__(self, parameters, context):
        pass

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return SchedulerFacts(parameters.max_num_seqs, parameters.max_num_batched_tokens, takes_stages=False)

    @staticmethod
    def kv_cache(parameters, plan):
        """See Scheduler."""
        with_identity = plan.with_identity or plan.enable_prefix_caching        # preempted ones may find their blocks
        return Scheduler.kv_cache(parameters, replace(plan, with_identity=with_identity))

    def advice(self, stall_reason):
        """See Scheduler."""
        if stall_reason in ("passed over", "left alone"):
            return f"{type(self).__name__}.form_batch schedules nothing while nothing else happens"
        return Scheduler.advice(self, stall_reason)

    def form_batch(self, batch, now_ns):
        """Schedule the iteration that begins now, by calls to `batch`, a `NextBatch`.

        Called whenever the replica is free and has requests. An empty batch means that nothing can run until a request
        arrives or leaves; after one that preempts and runs nothing, form_batch is called again at once.
        """
        raise NotImplementedError(f"{type(self).__name__} must override form_batch")

    cdef int schedule(self, Batch* batch, int64_t now_ns) except -1 nogil:
        cdef int32_t slot
        batch.start_ns = now_ns
        batch.num_entries = batch.num_preempted = batch.num_members = batch.num_starved = 0
        clear_shape(&batch.shape)
        if self._running.size + self.waiting.size > 0:
            with gil:
                self._ask(batch, now_ns)
        slot = self._running.head
        while slot >= 0:
            if self._sequences[slot].scheduled > 0:
                self.add_entry(batch, slot)
            slot = self._links.next(slot)
        self.close(batch, -1)
        return 0

    cdef int finish(self, int32_t slot) except -1 nogil:
        with gil:
            self._views.pop(self._sequences[slot].row, None)
        return self._vacate(slot, False)

    cdef int _ask(self, Batch* batch, int64_t now_ns) except -1:
        cdef int32_t slot = self._running.head
        cdef LocalRequest request
        self._turn += 1
        self._budget, self._num_preempted = self.max_batched_tokens, 0
        while slot >= 0:
            self._sequences[slot].scheduled = 0
            request = self._view(self._sequences[slot].row)
            request.place, request.turn, request.slot = RUNS, self._turn, slot
            slot = self._links.next(slot)
        self._batch = batch
        try:
            answer = self.form_batch(self._next, now_ns)
        finally:
            self._batch = NULL
        if answer is not None:
            raise ValueError(f"{type(self).__name__}.form_batch: expected None, since calls to the batch say what "
                             f"runs; found {answer!r}")
        return 0

    cdef object _view(self, int32_t row):
        cdef LocalRequest request = self._views.get(row)
        if request is None:
            request = self._views[row] = LocalRequest.__new__(LocalRequest)
            RequestView.__init__(request, self._context)
            request.row = row
            request.scheduler = self
        return request

    cdef list _list_waiting(self):
        cdef LocalRequest request
        cdef list requests = [self._view(row) for row in self.waiting.rows()]
        for request in requests:
            if request.turn != self._turn or request.place != PREEMPTED:
                request.place, request.turn, request.slot = WAITS, self._turn, -1
        self._listed = self._turn
        return requests

    cdef object _checked(self, object request, str deed, int8_t place):
        """Return a request with the place that the call `deed` requires, or raise."""
        cdef LocalRequest view
        if self._batch == NULL:
            raise ValueError(f"{type(self).__name__}: a batch is formed only while form_batch runs")
        if not isinstance(request, LocalRequest):
            raise TypeError(f"{type(self).__name__}: cannot {deed} {request!r}: expected one of batch.waiting or "
                            "batch.running")
        view = request
        if view.scheduler is not self:
            raise self._fault(view, deed, "it is not in this replica")
        if place == WAITS and self._listed != self._turn:
            self._list_waiting()
        if view.turn != self._turn:
            raise self._fault(view, deed, "it waits; admit it first" if self._waits(view) else "it has left")
        if view.place != place:
            raise self._fault(view, deed, WHERE[view.place])
        return view

    cdef bint _waits(self, LocalRequest view) except -1:
        if self._listed != self._turn:
            self._list_waiting()
        return view.turn == self._turn

    cdef object _fault(self, LocalRequest request, str deed, str reason):
        return ValueError(f"{type(self).__name__}: cannot {deed} request {request.request_id}: {reason}")

    cdef int64_t _granted(self, LocalRequest request, str deed, object tokens, int64_t cached) except -1:
        """Return the tokens that a request gets; 0: the budget is used up."""
        cdef int64_t asked, remaining = request.remaining_tokens - cached
        if tokens is None:
            return min(remaining, self._budget)
        try:
            asked = operator.index(tokens)
        except TypeError:
            raise self._fault(request, deed, f"expected a whole number of tokens, found {tokens!r}") from None
        if not 1 <= asked <= remaining + cached:
            raise self._fault(request, deed, f"expected 1 to {remaining + cached} tokens, what remains of its text, "
                                             f"found {asked}")
        if asked > self._budget:
            raise self._fault(request, deed, f"{asked} tokens are more than the {self._budget} left of "
                                             f"max_num_batched_tokens = {self.max_batched_tokens}")
        return min(asked, remaining)

    cdef bint _admit(self, object given, object tokens, bint whole) except -1:
        cdef LocalRequest request = self._checked(given, "admit", WAITS)
        cdef int32_t row = request.row, hits, slot
        cdef int64_t text = self._requests[row].prompt_tokens + self._requests[row].output_tokens, computed, granted
        if self._running.size >= self.max_running:
            raise self._fault(request, "admit", f"max_num_seqs = {self.max_running} requests run")
        hits = self.kv.lookup(row, <int32_t>text)
        computed = <int64_t>hits * self.kv.block_size
        granted = self._granted(request, "admit", tokens, computed)
        slot = self.top_slot()
        if granted == 0 or not self.kv.allocate(
                slot, row, hits, computed + granted, text if whole else 0, 0, computed + granted):
            return False
        self.waiting.remove(row)
        self.admit(row, hits, self._batch)
        self._sequences[slot].scheduled = <int32_t>granted
        self._budget -= granted
        request.place, request.slot = STARTS, slot
        return True

    cdef bint _run(self, object given, object tokens) except -1:
        cdef LocalRequest request = self._checked(given, "run", RUNS)
        cdef Sequence* sequence = &self._sequences[request.slot]
        cdef int64_t granted
        if sequence.scheduled > 0:
            raise self._fault(request, "run", f"it has {sequence.scheduled} tokens in this batch already")
        granted = self._granted(request, "run", tokens, 0)
        if granted == 0 or not self.kv.allocate(
                request.slot, request.row, 0, sequence.num_computed + granted, 0, 0, sequence.num_computed + granted):
            return False
        sequence.scheduled = <int32_t>granted
        self._budget -= granted
        return True

    cdef int _preempt(self, object given) except -1:
        cdef LocalRequest request = self._checked(given, "preempt", RUNS)
        self._budget += self._sequences[request.slot].scheduled
        self.preempt(request.slot, self._batch)
        self.waiting.push_front(request.row)
        request.place, request.slot = PREEMPTED, -1
        self._num_preempted += 1
        return 0


cdef enum:                      # place of a request in this turn
    WAITS
    RUNS
    STARTS                      # admitted by the batch being formed
    PREEMPTED                   # by the batch being formed

WHERE = {
    WAITS: "it waits; admit it first", RUNS: "it runs", STARTS: "it was admitted by this very batch",
    PREEMPTED: "it was preempted by this very batch",
}


@cython.final
cdef class NextBatch:
    """The batch that `PythonScheduler.form_batch` forms; valid only during that call."""

    cdef PythonScheduler scheduler

    def __init__(self):
        raise TypeError("a NextBatch is made by the engine alone")

    @property
    def waiting(self) -> list:
        """The waiting requests: preempted ones in front, the others in order of arrival."""
        return self.scheduler._list_waiting()

    @property
    def running(self) -> list:
        """The running requests, in order of admission, including those admitted by this batch."""
        return [self.scheduler._view(row) for row in self.scheduler.running_rows()]

    @property
    def budget(self) -> int:
        """Tokens that the batch may still take."""
        return self.scheduler._budget

    @property
    def places(self) -> int:
        """Requests that may still be admitted."""
        return self.scheduler.max_running - self.scheduler.num_running()

    @property
    def num_preempted(self) -> int:
        """Requests that this batch has preempted so far."""
        return self.scheduler._num_preempted

    @property
    def free_blocks(self) -> int:
        """KV blocks that no request owns; they may hold cached prompts."""
        return self.scheduler.kv.free_blocks

    @property
    def num_blocks(self) -> int:
        """KV blocks of the replica, free or not."""
        return self.scheduler.kv.num_blocks

    def most_blocks(self, request) -> int:
        """Return the KV blocks that a request takes at its longest: with max_tokens of output.

        No text is longer than max_model_len. Blocks that it shares with other requests are counted.
        """
        cdef object tokens = min(request.prompt_tokens + request.max_tokens, self.scheduler._context.max_model_len)
        return blocks_for(tokens, self.scheduler.kv.block_size)

    def cached_tokens(self, request) -> int:
        """Return the tokens of a waiting request that are found in the prefix cache."""
        cdef LocalRequest view = self.scheduler._checked(request, "look up", WAITS)
        return self.scheduler.kv.lookup(view.row, <int32_t>view.remaining_tokens) * self.scheduler.kv.block_size

    def admit(self, request, tokens=None, *, whole=False) -> bool:
        """Admit a waiting request, and compute tokens that are not in the prefix cache; return whether it succeeded.

        tokens : computed at most; None: all that remain, as far as the budget lasts.
        whole : admit only if there are KV blocks for its whole text.

        If the budget is used up, or too few KV blocks are free, it returns False and changes nothing.
        """
        return self.scheduler._admit(request, tokens, whole)

    def run(self, request, tokens=None) -> bool:
        """Let a running request compute its next tokens; returns True or False as `admit` does.

        A request samples a token in each iteration that reaches the end of its text, prompt and outputs so far.
        """
        return self.scheduler._run(request, tokens)

    def preempt(self, request):
        """Put a running request back in front of the waiting ones; its blocks are freed, its text is recomputed."""
        self.scheduler._preempt(request)


@cython.final
cdef class LocalRequest(RequestView):
    """A request in a replica: the facts that its client declared, and its progress."""

    cdef PythonScheduler scheduler
    cdef int64_t turn                   # call of form_batch that place and slot belong to
    cdef int8_t place
    cdef int32_t slot                   # -1: it does not run

    def __init__(self):
        raise TypeError("a LocalRequest is made by the engine alone")

    def __repr__(self):
        return f"<request {self.request_id}>"

    @property
    def request_id(self):
        """Name of the request in the trace."""
        return self.scheduler._context.request_ids[self.row]

    @property
    def is_running(self) -> bool:
        """Whether it has a place in the running list, and KV blocks."""
        return self.turn == self.scheduler._turn and self.slot >= 0

    @property
    def output_tokens(self) -> int:
        """Tokens that it has generated so far."""
        return self._requests[self.row].output_tokens

    @property
    def computed_tokens(self) -> int:
        """Tokens of its text in the KV cache, before this iteration; 0 while it waits."""
        return self.scheduler.sequence(self.slot).num_computed if self.is_running else 0

    @property
    def remaining_tokens(self) -> int:
        """Tokens of its text, prompt and outputs so far, still to be computed; 1: it decodes."""
        return self.prompt_tokens + self.output_tokens - self.computed_tokens

    @property
    def scheduled_tokens(self) -> int:
        """Tokens that it computes in the batch being formed."""
        return self.scheduler.sequence(self.slot).scheduled if self.is_running else 0

    @property
    def preemptions(self) -> int:
        """Number of its preemptions."""
        return self._requests[self.row].preemptions
