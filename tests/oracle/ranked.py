"""Schedulers that rank who waits, in plain Python, one iteration at a time: no recording of them exists.

`Replica` is what they share (simulator/scheduling/ranked.pyx), without prefix caching and pipeline stages; a policy
says where requests stand, the least first. Iterations take the same time.
"""
from dataclasses import dataclass
from math import inf


@dataclass
class Active:
    """A request that has arrived; tokens."""

    row: int
    arrival_ns: int
    prompt: int
    output: int
    tenant: int = 0
    generated: int = 0
    computed: int = 0
    blocks: int = 0
    has_sampled: bool = False       # since it was admitted
    preemptions: int = 0
    was_admitted: bool = False

    @property
    def text(self):
        return self.prompt + self.generated


class Replica:
    """One replica; `parameters` as the engine takes them."""

    gives_way = False

    def __init__(self, parameters, num_blocks, block_size):
        self.p, self.free, self.block_size = parameters, num_blocks, block_size
        self.num_blocks, self.threshold = num_blocks, parameters.long_prefill_token_threshold or inf
        self.running, self.waiting, self.given_way, self.now = [], [], 0, 0

    # ---- the policy

    def standing(self, request):
        """Return where one that waits stands, or runs."""
        raise NotImplementedError

    def come(self, request):
        self.waiting.append(request)

    def begin(self):
        """Take notice of the instant."""

    def may_give_way(self):
        return inf

    def preempted(self, request):
        """Take notice of one that has lost its place."""

    def admitted(self, request):
        """Take notice of one that has got a place."""

    # ---- what they share

    def blocks(self, tokens):
        return -(-tokens // self.block_size)

    def wanted(self, request):
        return min(request.text - request.computed, self.threshold)

    def next(self, waiting):
        return min(waiting, key=lambda each: (self.standing(each), each.arrival_ns, each.row))

    def preempt(self, request):
        self.running.remove(request)
        self.free += request.blocks
        self.preempted(request)
        request.blocks = request.computed = 0
        request.has_sampled = False
        request.preemptions += 1
        self.waiting.append(request)

    def form(self, now):
        """Return {row: tokens} of the next batch."""
        self.now = now
        self.begin()
        while self.gives_way and self.give_way():
            self.begin()
        batch, budget, whole = {}, self.p.max_num_batched_tokens, True
        for request in list(self.running):
            tokens = min(self.wanted(request), budget) if request in self.running else 0
            while request in self.running and tokens and self.blocks(request.computed + tokens) > (
                    request.blocks + self.free):
                victim, whole = self.victim(), False
                budget += batch.pop(victim.row, 0)
                self.preempt(victim)
            if request in self.running and tokens:
                self.grow(request, request.computed + tokens)
                batch[request.row] = tokens
                budget -= tokens
            elif tokens:                        # it fell victim itself
                break
        while whole and budget > 0 and self.waiting and len(self.running) < self.p.max_num_seqs:
            request = self.next(self.waiting)
            if self.blocks(request.text) > self.free:
                break
            self.waiting.remove(request)
            self.running.append(request)
            batch[request.row] = min(self.wanted(request), budget)
            self.grow(request, batch[request.row])
            budget -= batch[request.row]
            self.admitted(request)
            request.was_admitted = True
        return batch

    def grow(self, request, tokens):
        more = max(self.blocks(tokens) - request.blocks, 0)
        request.blocks += more
        self.free -= more

    def victim(self):
        if not self.gives_way:
            return self.running[-1]
        worst = max(map(self.standing, self.running))
        return [each for each in self.running if self.standing(each) == worst][-1]

    def give_way(self):
        """Preempt for who waits; say whether anybody was."""
        wanted = [self.wanted(each) for each in self.running]
        spare = self.free - sum(max(self.blocks(each.computed + tokens) - each.blocks, 0)
                                for each, tokens in zip(self.running, wanted, strict=True))
        places, budget = self.p.max_num_seqs - len(self.running), self.p.max_num_batched_tokens - sum(wanted)
        waiting, before = list(self.waiting), self.given_way
        while budget > 0 and waiting:
            request = self.next(waiting)
            needed, yielding = self.blocks(request.text), self.yielding(request)
            if places <= 0 or needed > spare:
                if not yielding or needed > spare + sum(each.blocks for each in yielding):
                    break
                while places <= 0 or needed > spare:
                    yielding = self.yielding(request)
                    if not yielding:
                        return self.given_way > before
                    worst = max(map(self.standing, yielding))
                    victim = [each for each in yielding if self.standing(each) == worst][-1]
                    spare, places = spare + victim.blocks, places + 1
                    self.given_way += 1
                    self.preempt(victim)
            elif self.given_way == before:
                break
            places, spare = places - 1, spare - needed
            waiting.remove(request)
            budget -= self.wanted(request)
        return self.given_way > before

    def yielding(self, request):
        if self.may_give_way() <= 0:
            return []
        return [each for each in self.running if each.has_sampled and self.standing(each) > self.standing(request)]

    def end(self, batch):
        """Take in what a batch brought; return the rows that are done."""
        done = []
        for request in list(self.running):
            request.computed += batch.get(request.row, 0)
            if request.row in batch and request.computed == request.text:
                request.generated += 1
                request.has_sampled = True
                if request.generated >= request.output:
                    done.append(request.row)
                    self.free += request.blocks
                    self.running.remove(request)
        return done


class FastServe(Replica):
    """Numbers of queues; requests note since when they wait or run, and what they have spent of a quantum."""

    gives_way = True

    def __init__(self, *args):
        super().__init__(*args)
        self.quanta = [round(self.p.quantum_ms * 1e6 * self.p.quantum_ratio**i) for i in range(40)]
        known = self.p.prefill_us_per_token
        self.ns_per_token, self.notes = (0.0 if known is None else known * 1e3), {}

    def learn(self, duration_ns, prompt_tokens, is_first):
        if self.p.prefill_us_per_token is None:
            found = duration_ns / prompt_tokens
            self.ns_per_token = found if is_first else min(self.ns_per_token, found)

    def come(self, request):
        queue = next(i for i, quantum in enumerate(self.quanta) if quantum >= self.ns_per_token * request.prompt)
        self.notes[request.row] = (request.arrival_ns, 0, queue)
        super().come(request)

    def now_at(self, request):
        since, spent, queue = self.notes[request.row]
        spent += self.now - since
        while spent > self.quanta[queue]:
            spent, queue = spent - self.quanta[queue], queue + 1
        return self.now, spent, queue

    def standing(self, request):
        return (self.now_at(request) if request in self.running else self.notes[request.row])[2]

    def preempted(self, request):
        self.running.append(request)
        self.notes[request.row] = self.now_at(request)
        self.running.remove(request)

    def admitted(self, request):
        self.notes[request.row] = (self.now, *self.notes[request.row][1:])

    def begin(self):
        for request in self.waiting:
            if self.now - self.notes[request.row][0] >= self.p.starvation_s * 1e9:
                self.notes[request.row] = (self.now, 0, 0)


class Andes(Replica):
    """Gains for each token of a text, negative; where blocks and places abound, instants of arrival."""

    gives_way = True

    def __init__(self, *args):
        super().__init__(*args)
        self.num_came, self.is_tight = 0, False

    def come(self, request):
        self.num_came += 1
        super().come(request)

    def begin(self):
        tokens = (self.num_blocks - self.free) * self.block_size + sum(each.text for each in self.waiting)
        self.is_tight = len(self.running) + len(self.waiting) > self.p.max_num_seqs or (
            tokens >= self.p.kv_watermark * self.num_blocks * self.block_size)

    def may_give_way(self):
        most = int(self.p.preemptions_per_request * self.num_came) - self.given_way
        return most if self.is_tight else 0

    def next(self, waiting):
        if self.is_tight:
            return super().next(waiting)
        return min(waiting, key=lambda each: (each.arrival_ns, each.row))

    def standing(self, request):
        p = self.p
        expected = p.tokens_per_s * 1e-9 * (
            float(self.now - request.arrival_ns) + p.horizon_s * 1e9 - p.expected_ttft_s * 1e9)
        served = p.horizon_s * 1e3 / p.token_latency_ms
        gain = qoe(request.generated + served, expected) - qoe(request.generated, expected)
        weight = 1 + p.running_bonus if request in self.running else 1.0
        return -gain * weight / (request.prompt + request.generated)


def qoe(tokens, expected):
    lacking = expected - tokens
    return 1.0 if lacking <= 0 else 1.0 - (lacking / expected) * (lacking / expected)


class Vtc(Replica):
    """Counters of tenants, brought up to date when a request comes or leaves."""

    def __init__(self, *args):
        super().__init__(*args)
        self.service, self.counter, self.last_left, self.back, self.changed = {}, {}, None, [], False

    def come(self, request):
        if request.tenant not in self.back and all(each.tenant != request.tenant for each in self.waiting):
            self.back.append(request.tenant)
        self.changed = True
        super().come(request)

    def begin(self):
        if self.changed:
            self.counter = dict(self.service)
        for tenant in self.back:
            others = [self.counter.get(each.tenant, 0) for each in self.waiting
                      if each.tenant not in self.back[self.back.index(tenant):]]
            least = min(others) if others else self.counter.get(self.last_left, 0)
            own = self.counter.get(tenant, 0)
            self.service[tenant] = self.service.get(tenant, 0) + max(least - own, 0)
            self.counter[tenant] = max(least, own)
        self.back, self.changed = [], False

    def standing(self, request):
        return self.counter.get(request.tenant, 0)

    def admitted(self, request):
        if not request.was_admitted:
            charge = self.p.input_token_weight * request.prompt
            for account in (self.service, self.counter):
                account[request.tenant] = account.get(request.tenant, 0) + charge
        if all(each.tenant != request.tenant for each in self.waiting):
            self.last_left = request.tenant

    def preempted(self, request):
        self.changed = True

    def end(self, batch):
        before = {request.row: (request.tenant, request.generated, request) for request in self.running}
        done = super().end(batch)
        for tenant, generated, request in before.values():
            self.service[tenant] = self.service.get(tenant, 0) + (
                self.p.output_token_weight * (request.generated - generated))
        self.changed = self.changed or bool(done)
        return done


def serve(requests, replica, iteration_ns):
    """Return ([instant at which each is complete], [preemptions]); requests: (arrival_ns, prompt, output, tenant)."""
    pending = [Active(row, *request) for row, request in enumerate(requests)]
    everybody, completed, now, prompts, has_learned = list(pending), {}, 0, 0, False
    while pending or replica.running or replica.waiting:
        if not (replica.running or replica.waiting):
            now = max(now, pending[0].arrival_ns)
        while pending and pending[0].arrival_ns <= now:
            replica.come(pending.pop(0))
        if prompts and isinstance(replica, FastServe):
            replica.learn(iteration_ns, prompts, not has_learned)
            has_learned = True
        batch = replica.form(now)
        while not batch:
            batch = replica.form(now)
        prompts = sum(batch[each.row] for each in replica.running if each.row in batch and not each.has_sampled)
        now += iteration_ns
        completed |= dict.fromkeys(replica.end(batch), now)
    return [completed[row] for row in range(len(requests))], [request.preemptions for request in everybody]
