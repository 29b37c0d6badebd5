"""The twin's scheduler: which requests compute how many tokens in the next iteration, and what its end changes.

Source of the rules: vLLM 0.32.0 and 0.10.1, as ../shared/specs/vllm.md describes them (D.1 to D.8, D.11, D.12).
"""
from bisect import insort
from dataclasses import dataclass, field

from oracle.kv_cache import KvCache
from oracle.layer_groups import GroupedKvCache


@dataclass(eq=False)
class Request:
    """A request inside a replica. There are no phases: each iteration tries to bring `computed` up to all tokens."""

    row: int
    tokens: list                    # prompt, then outputs; a token is (stream, offset)
    num_prompt: int
    max_tokens: int                 # declared limit of outputs
    stops_at: int                   # true number of outputs
    output_stream: int
    enqueued_ns: int
    priority: int
    tie_rank: int
    deadline_ns: int
    computed: int = 0               # tokens in the KV cache, those of the iteration in flight included
    prefill_end: int = 0            # tokens it had when it was last admitted: up to here it prefills
    num_drafts: int = 0             # draft tokens waiting to be verified
    placeholders: int = 0           # async: tokens that iterations in flight will bring
    in_flight: int = 0              # tokens scheduled in iterations that have not ended
    stale: int = 0                  # of these, scheduled before the last preemption
    num_verified: int = 0           # verify steps so far: position in the acceptance sequence
    eligible: int = 0               # the step from which on it may be scheduled again, where they are counted
    is_partial: bool = False        # its last scheduled chunk ends inside the prompt
    is_running: bool = False
    blocks: list = field(default_factory=list)
    hashes: list = field(default_factory=list)
    num_hashed: int = 0             # leading blocks that are findable

    @property
    def num_tokens(self):
        return len(self.tokens)

    @property
    def num_outputs(self):
        return len(self.tokens) - self.num_prompt

    def __lt__(self, other):        # order of the priority queue
        return ((self.priority, self.enqueued_ns, self.tie_rank)
                < (other.priority, other.enqueued_ns, other.tie_rank))


@dataclass
class Step:
    """One decision: tokens by row in scheduled order, and what was admitted, preempted and drafted."""

    tokens: int
    threshold: int
    inputs: int                                         # tokens that may be computed, masks of drafts included
    slots: int                                          # masks of each request
    scheduled: dict = field(default_factory=dict)
    before: dict = field(default_factory=dict)          # row -> tokens computed before this step
    hits: dict = field(default_factory=dict)            # row -> cached tokens, of those admitted
    drafts: dict = field(default_factory=dict)
    preempted: list = field(default_factory=list)
    samples: set = field(default_factory=set)           # rows that will sample a token
    decoding: set = field(default_factory=set)          # rows past their prefill
    feeds: bool = False                                 # somebody goes on with a token of it

    def add(self, request, num_tokens):
        self.scheduled[request.row] = num_tokens
        self.before[request.row] = request.computed
        self.give(-num_tokens)

    def give(self, num_tokens):
        """Give back tokens of a request with its masks; take them, if negative."""
        self.tokens += num_tokens
        self.inputs += num_tokens + (self.slots if num_tokens > 0 else -self.slots if num_tokens < 0 else 0)

    @property
    def budget(self):
        return min(self.tokens, self.inputs - self.slots)


class Scheduler:
    def __init__(self, parameters, num_gpu_blocks, block_size, enable_prefix_caching, max_model_len, layer_groups=None):
        self.p = parameters
        self.old, self.new = parameters.vllm_version == "0.10", parameters.vllm_version == "0.33"
        self.by_priority = parameters.policy == "priority"
        self.max_model_len = max_model_len
        if layer_groups is None:
            self.cache = KvCache(num_gpu_blocks, block_size, enable_prefix_caching, unhashed_last=self.old)
        else:
            in_flight = parameters.max_num_batched_tokens * (2 if parameters.async_scheduling else 1)
            self.cache = GroupedKvCache(num_gpu_blocks, layer_groups, enable_prefix_caching, max_model_len, in_flight)
        reserve = parameters.scheduler_reserve_full_isl
        self.whole = not self.old if reserve is None else reserve
        self.watermark = int(parameters.watermark * num_gpu_blocks)
        speculative = parameters.speculative
        self.num_drafts = speculative.num_tokens if speculative else 0
        self.lookahead = speculative.num_lookahead_tokens if speculative else 0
        self.acceptance = speculative.acceptance if speculative else ()
        self.masks = self.num_drafts if speculative and speculative.parallel_drafting else 0    # of draft models
        self.requests = {}
        self.waiting = []
        self.running = []
        self.stride = 0             # async scheduling with stages: steps from one token of a request to its next
        self.num_steps = 0

    def add(self, request):
        self.requests[request.row] = request
        self._enqueue(request)

    def abort(self, request):
        """Forget a request whose client has given up."""
        self._remove(request)
        self.cache.release(request)

    def schedule(self):
        """Decide the next iteration; `computed` counts it as done from here on."""
        step = Step(*self._limits())
        self.num_steps += 1
        self.cache.evicted = []
        self.cache.begin_step()
        self._continue_running(step)
        if not step.preempted:
            self._admit_waiting(step)
        for row, num_tokens in step.scheduled.items():
            self._advance(step, self.requests[row], num_tokens)
        self.cache.end_step()
        return step

    def _limits(self):
        p = self.p
        present = len(self.running) + len(self.waiting)
        threshold = p.long_prefill_token_threshold
        if not self.old:
            threshold = threshold if present > 1 else 0
            if threshold and p.long_prefill_token_threshold_adaptive:
                threshold = max(threshold, p.max_num_batched_tokens // present)
        return min(p.max_num_scheduled_tokens or p.max_num_batched_tokens, p.max_num_batched_tokens), (
            threshold), p.max_num_batched_tokens, self.masks

    # Phase 1: everything that runs, in admission order.

    def _continue_running(self, step):
        index = 0
        while index < len(self.running) and step.budget > 0:
            request = self.running[index]
            num_tokens = self._wanted(request, step)
            if num_tokens > 0:
                index = self._make_room(request, num_tokens, index, step)
                if not request.is_running and self.new and self.by_priority:
                    continue                                    # those behind it may still fit
                if not request.is_running:
                    break
                step.add(request, num_tokens)
                known = request.num_tokens + request.placeholders
                drafts = min(request.num_drafts, request.computed + num_tokens - known)
                if drafts > 0:
                    step.drafts[request.row] = drafts
                request.num_drafts = 0
            index += 1

    def _wanted(self, request, step):
        if (not self.old and request.placeholders > 0
                and request.computed + 2 - request.placeholders >= request.num_prompt + request.max_tokens):
            return 0                # the iteration in flight ends it for certain
        if self.num_steps < request.eligible:
            return 0
        tokens = request.num_tokens + request.num_drafts + request.placeholders - request.computed
        if 0 < step.threshold < tokens:
            tokens = step.threshold
        tokens = min(tokens, step.budget, self.max_model_len - request.computed - 1)
        return self.cache.align(request, request.computed, tokens, self._largest_chunk())

    def _largest_chunk(self):
        threshold = self.p.long_prefill_token_threshold
        return min(self._limits()[0], threshold) if threshold else self._limits()[0]

    def _make_room(self, request, num_tokens, index, step):
        """Preempt until the tokens fit or `request` itself had to go; return where it stands now."""
        while not self.cache.allocate(request, num_tokens, lookahead=self.lookahead, max_model_len=self.max_model_len):
            victim = self.running[-1]
            if self.by_priority:
                victim = max(self.running, key=lambda other: (other.priority, other.enqueued_ns))
            place = self.running.index(victim)
            self._preempt(victim, step)
            if self.by_priority and not self.old:
                index -= place < index
                step.give(step.scheduled.pop(victim.row, 0))
            step.drafts.pop(victim.row, None)
            step.scheduled.pop(victim.row, None)
            if victim is request:
                break
        return index

    def _preempt(self, request, step):
        self._remove(request)
        self.cache.release(request)
        request.computed = request.num_drafts = request.placeholders = 0
        request.stale = request.in_flight
        step.preempted.append(request.row)
        self.requests[request.row] = request
        self._enqueue(request, front=True)

    # Phase 2: the waiting queue, until its head does not fit.

    def _admit_waiting(self, step):
        decoding = bool(step.scheduled)
        prefilling = any(self.requests[row].is_partial for row in step.scheduled)
        limit = self.p.max_num_active_seqs or self.p.max_num_seqs
        passed_over = []
        while self.waiting and step.budget > 0 and len(self.running) < limit:
            request = self.waiting[0]
            if request.stale:                                   # async: its old output has not come yet
                passed_over.append(self.waiting.pop(0))
                continue
            hits = self.cache.lookup(request)
            num_hit = self.cache.hit_tokens(hits)
            may_pad = ((decoding or num_hit > 0) and not prefilling
                       and num_hit + self.num_drafts + 2 <= self.max_model_len)
            num_tokens, num_pad = self._first_chunk(request, num_hit, step, may_pad)
            if num_tokens > step.budget:
                if not self.old:
                    break
                passed_over.append(self.waiting.pop(0))
                continue
            if not self.cache.allocate(
                    request, num_tokens, hits=hits, lookahead=0 if self.old else self.lookahead, whole=self.whole,
                    max_model_len=self.max_model_len, watermark=self.watermark if self.running else 0):
                break
            self.running.append(self.waiting.pop(0))
            request.is_running = True
            request.computed, request.prefill_end = num_hit, request.num_tokens
            step.add(request, num_tokens)
            step.hits[request.row] = num_hit
            if num_pad:
                step.drafts[request.row] = num_pad
        for request in reversed(passed_over):
            self._enqueue(request, front=True)

    def _first_chunk(self, request, num_hit, step, may_pad):
        """Return the tokens of an admission, and how many of them are padding to the shape of a verify step.

        More tokens than the budget means that it cannot be admitted now.
        """
        tokens, pad = request.num_tokens - num_hit, 0
        if tokens == 1 and self.num_drafts and may_pad and not self.old:
            pad = self.num_drafts
            tokens += pad
            if tokens > step.budget:
                return tokens, pad
        if 0 < step.threshold < tokens:
            tokens = step.threshold
        if self.p.enable_chunked_prefill:
            tokens = min(tokens, step.budget)
        if tokens > step.budget:
            return tokens, pad
        return self.cache.align(request, num_hit, tokens, self._largest_chunk()) or step.budget + 1, pad

    def _advance(self, step, request, num_tokens):
        if request.computed >= request.prefill_end:
            step.decoding.add(request.row)
        request.computed += num_tokens
        request.in_flight += num_tokens
        request.is_partial = request.computed < request.num_tokens + request.placeholders
        if not request.is_partial:
            step.samples.add(request.row)
            text, limit = request.num_tokens, min(request.num_prompt + request.max_tokens, self.max_model_len)
            step.feeds |= request.row in step.decoding or text + 1 < limit
            request.eligible = self.num_steps + self.stride if self.stride else 0
            if self.p.async_scheduling:
                request.placeholders += 1 + step.drafts.get(request.row, 0)
                request.num_drafts = self.num_drafts

    # The end of an iteration.

    def update(self, step):
        """Take in what the iteration brought: {row: tokens kept}, and the rows that finished, in scheduled order."""
        brought, finished = {}, []
        for row, num_tokens in step.scheduled.items():
            request = self.requests.get(row)
            if request is None:                                 # it ended, or was aborted, while this was in flight
                continue
            request.in_flight -= num_tokens
            is_stale = request.stale > 0
            if is_stale:
                request.stale -= num_tokens
            if row in step.samples:
                brought[row], done = self._accept(step, request, is_stale)
                if done:
                    self.cache.release(request)
                    finished.append(request)
                elif self.num_drafts and not (self.p.async_scheduling or is_stale):
                    request.num_drafts = self.num_drafts
        for request in finished:
            self._remove(request)
        return brought, [request.row for request in finished]

    def _accept(self, step, request, is_stale):
        drafts = step.drafts.get(request.row, 0)
        accepted = self._num_accepted(request, drafts, is_padded=request.row in step.hits)
        if drafts and not is_stale:
            rejected = drafts - accepted
            request.computed -= rejected if request.computed > 0 else 0
            request.placeholders -= rejected if request.placeholders > 0 else 0
        num_kept, done = 0, False
        while num_kept <= accepted and not done:
            num_kept += 1
            if request.stops_at > 0:
                request.tokens.append((request.output_stream, request.num_outputs))
            done = (request.num_outputs >= min(request.stops_at, request.max_tokens)
                    or request.num_tokens >= self.max_model_len)
        if self.p.async_scheduling:
            request.placeholders -= 0 if is_stale else num_kept
            if request.is_running:
                self.cache.register(request, request.computed - request.placeholders)
        elif self.new and self.num_drafts and not is_stale:
            request.computed -= accepted + 1 - num_kept             # accepted drafts behind the last token
            self.cache.register(request, min(request.computed, request.num_tokens))
        return num_kept if request.stops_at else 0, done

    def _num_accepted(self, request, num_drafts, is_padded):
        if not num_drafts:
            return 0
        request.num_verified += 1
        if is_padded:
            return 0
        return min(self.acceptance[(request.num_verified - 1) % len(self.acceptance)], num_drafts)

    # The two lists.

    def _enqueue(self, request, front=False):
        request.is_running = False
        if self.by_priority:
            insort(self.waiting, request)
        else:
            self.waiting.insert(0 if front else len(self.waiting), request)

    def _remove(self, request):
        (self.running if request.is_running else self.waiting).remove(request)
        request.is_running = False
        del self.requests[request.row]
