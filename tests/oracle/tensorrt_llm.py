"""TensorRT-LLM's rules in plain Python, one iteration at a time: no recording of it exists.

Source: cpp/tensorrt_llm/batch_manager/{capacityScheduler,microBatchScheduler}.cpp and `_waiting_requests` of
tensorrt_llm/_torch/pyexecutor/py_executor.py, without prefix caching, drafts and beams. Who fits is looked for among
all active requests in order of arrival, then what fits is put into a batch: two passes over lists, as upstream has
them, where the engine has one over its groups.
"""
from dataclasses import dataclass


@dataclass
class Active:
    """A request that has arrived; tokens."""

    row: int
    prompt: int
    max_tokens: int
    output: int
    generated: int = 0
    computed: int = 0
    blocks: int = 0                 # held; 0: it has not begun
    pauses: int = 0
    is_generating: bool = False     # its text was computed since it began; else it is a context

    @property
    def text(self):
        return self.prompt + self.generated


class Oracle:
    """One replica; `parameters` as the engine takes them."""

    def __init__(self, parameters, num_blocks, block_size, max_model_len):
        self.p, self.free, self.block_size, self.max_model_len = parameters, num_blocks, block_size, max_model_len
        self.evicts = parameters.capacity_scheduler_policy == "MAX_UTILIZATION"
        self.active = []
        self.num_waited = 0

    def blocks(self, tokens):
        return -(-tokens // self.block_size)

    def next_step(self, request):
        """Return the blocks that a request lacks for its next step: all of its text when it begins."""
        tokens = request.computed + 1 if request.is_generating else request.text
        return max(self.blocks(tokens) - request.blocks, 0)

    def to_completion(self, request):
        whole = self.blocks(min(request.prompt + request.max_tokens, self.max_model_len))
        return max(whole, self.blocks(request.text)) - request.blocks

    def form(self):
        """Return {row: tokens} of the next batch; what it needs is allocated."""
        fitting = self.max_utilization() if self.evicts else self.no_evict()
        batch = self.micro_batch(fitting)
        for request in fitting:
            if request.row in batch:
                needed = self.next_step(request)
                request.blocks += needed
                self.free -= needed
        return batch

    # ---- capacity

    def no_evict(self):
        begun = [request for request in self.active if request.blocks]
        free = self.free - sum(map(self.to_completion, begun))
        if (self.p.batching_type == "STATIC" and begun) or (
                self.p.capacity_scheduler_policy == "STATIC_BATCH" and any(each.is_generating for each in begun)):
            return begun
        for request in self.active:
            if not request.blocks:
                if len(begun) >= self.p.max_batch_size or self.to_completion(request) > free:
                    break
                free -= self.to_completion(request)
                begun.append(request)
        return begun

    def max_utilization(self):
        fitting, free, candidates = [], self.free, list(self.active)
        may_begin = self.p.batching_type == "INFLIGHT" or not any(request.blocks for request in self.active)
        while candidates:
            request = candidates[0]
            fits = len(fitting) < self.p.max_batch_size and self.next_step(request) <= free
            if fits and (request.blocks or may_begin):
                free -= self.next_step(request)
                fitting.append(request)
            elif not request.blocks:
                may_begin = False                   # the first that does not fit ends the search for such
            if fits or not request.blocks:
                candidates.pop(0)
                continue
            last = next(each for each in reversed(candidates) if each.blocks)
            free += last.blocks
            self.free += last.blocks
            last.blocks = last.computed = 0
            last.is_generating = False
            last.pauses += 1
            may_begin = False                       # what is freed is for those that have begun
            candidates = candidates[:candidates.index(last)]
        return fitting

    # ---- micro batch

    def micro_batch(self, fitting):
        batch, left = {}, self.p.max_num_tokens
        for request in fitting:
            if request.is_generating and left > 0:
                batch[request.row] = 1
                left -= 1
        contexts = [request for request in fitting if not request.is_generating]
        chunks = self.chunks(contexts, left)
        if batch and any(chunks):
            too_few = len(batch) + sum(chunks) < self.p.batch_wait_max_tokens_ratio * self.p.max_num_tokens
            if too_few and self.num_waited < self.p.batch_wait_timeout_iters:
                self.num_waited += 1
                return batch
            self.num_waited = 0
        return batch | {request.row: chunk for request, chunk in zip(contexts, chunks, strict=False) if chunk}

    def chunks(self, contexts, left):
        lengths = [request.text - request.computed for request in contexts]
        if not self.p.enable_chunked_context:
            return self.whole(contexts, lengths, left)
        if sum(lengths) <= left:
            return lengths
        if self.p.context_chunking_policy == "FIRST_COME_FIRST_SERVED":
            given = []
            for length in lengths:
                chunk = length if length <= left else left // self.block_size * self.block_size
                given.append(chunk)
                left -= chunk
            return given
        given = [0] * len(lengths)
        grows = True
        while grows:
            grows = False
            for i, length in enumerate(lengths):
                more = min(self.block_size, length - given[i])
                if 0 < more <= left:
                    given[i] += more
                    left -= more
                    grows = True
        return given

    def whole(self, contexts, lengths, left):
        given = []
        for request, length in zip(contexts, lengths, strict=True):
            outgrown = length > self.p.max_num_tokens or request.blocks
            if length > left and not outgrown:
                break
            given.append(min(length, left))
            left -= given[-1]
        return given

    # ---- the end of an iteration

    def end(self, batch):
        """Take in what a batch brought; return the rows that are done."""
        done = []
        for request in list(self.active):
            request.computed += batch.get(request.row, 0)
            if request.row in batch and request.computed == request.text:
                request.generated += 1
                request.is_generating = True
                if request.generated >= request.output:
                    done.append(request.row)
                    self.free += request.blocks
                    self.active.remove(request)
        return done


def serve(requests, oracle, iteration_ns):
    """Return ([instant at which each is complete], [pauses]); requests: (arrival_ns, prompt, output, max_tokens)."""
    pending = [(arrival, Active(row, prompt, max_tokens, output))
               for row, (arrival, prompt, output, max_tokens) in enumerate(requests)]
    everybody, completed, now = [request for _, request in pending], {}, 0
    while pending or oracle.active:
        if not oracle.active:
            now = max(now, pending[0][0])
        while pending and pending[0][0] <= now:
            oracle.active.append(pending.pop(0)[1])
        batch = oracle.form()
        assert batch, "nobody fits"
        now += iteration_ns
        completed |= dict.fromkeys(oracle.end(batch), now)
    return [completed[row] for row in range(len(requests))], [request.pauses for request in everybody]
