"""A twin of SGLang's scheduler with HiCache in plain Python: passes, batches, copies and the store.

Rules: see the docstrings of scheduling/sglang, kv/radix_host, kv/tiers/hicache and kv/tiers/hicache_store. First come,
first served; without priorities, mixed batches and images.
"""
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from oracle.hicache import BATCH_PAGES, HostPages

INITIAL, LEAST, STEPS, MOST, RETRACT_STEPS = 0.7, 0.14, 600, 4096, 20


def rounded(value):
    """Round half up."""
    return int(value + 0.5)


@dataclass(eq=False)
class Request:
    """One request; `text` gives its tokens."""

    row: int
    arrival_ns: int
    prompt: int
    output: int
    most: int
    text: Any
    out: int = 0
    held: bool = False
    computed: int = 0
    scheduled: int = 0
    published: int = 0
    stale: int = 0              # batches in flight that it was put back from
    cached: int | None = None
    loaded: int = 0
    stored: int = 0
    first_ns: int = -1
    done_ns: int = -1
    fetch: Any = None


@dataclass(eq=False)
class Fetch:
    """A prefetch."""

    request: Request
    node: Any
    lock: Any
    begin: int
    asked: int
    pages: list
    stage: str = "asked"
    room: int = 0
    completed: int = 0
    deadline_ns: int | None = None


@dataclass(eq=False)
class Batch:
    """What executes."""

    requests: list
    is_prefill: bool
    start_ns: int = 0
    end_ns: int = 0
    context: int = 0
    stale: set = field(default_factory=set)


class Link:
    """Copies one after the other."""

    def __init__(self, base_ns, page_ns):
        self.base_ns, self.page_ns, self.free_ns, self.under_way, self.copies = base_ns, page_ns, 0, deque(), 0

    def begin(self, what, pages, now_ns):
        self.free_ns = max(self.free_ns, now_ns) + rounded(self.base_ns + self.page_ns * pages)
        self.under_way.append((self.free_ns, what))
        return self.free_ns

    def ended(self, now_ns):
        found = []
        while self.under_way and self.under_way[0][0] <= now_ns:
            found += self.under_way.popleft()[1]
            self.copies += 1
        return found

    def next_ns(self):
        return self.under_way[0][0] if self.under_way else None


class Store:
    """What is below host memory: it holds everything, and reads and writes one batch after the other."""

    def __init__(self, sim, base_ns, read_ns, write_ns):
        self.sim, self.pages, self.fetches, self.writes = sim, {}, [], Link(base_ns, write_ns)
        self.base_ns, self.read_ns, self.reading, self.write_ends, self.asked = base_ns, read_ns, None, deque(), False

    def keys(self, text, begin, end):
        page = self.sim.page
        return [text[:place + page] for place in range(begin, end, page)]

    def write(self, text, depth, lock, now_ns):
        keys, job = self.keys(text, depth, len(text)), {"lock": lock, "left": 0}
        for first in range(0, len(keys), BATCH_PAGES):
            new = [key for key in keys[first:first + BATCH_PAGES] if key not in self.pages]
            if new:
                for key in new:
                    self.pages[key] = False             # it is being written
                self.writes.begin([(job, new)], len(new), now_ns)
                job["left"] += 1
        if not job["left"]:
            self.release.append(lock)

    release = ()

    def ask(self, request, node, begin, end, now_ns):
        sim, asked = self.sim, max((end - begin) // self.sim.page * self.sim.page, 0)
        if asked < sim.threshold or request.fetch or not (node is sim.tree.root or node.host):
            return
        if sum(fetch.asked for fetch in self.fetches if fetch.stage != "stopped") >= sim.tree.capacity // 2:
            sim.declined += 1
            return
        pages = []
        for key in self.keys(request.text(begin + asked), begin, begin + asked):
            if not self.pages.get(key):
                break
            pages.append(key)
        request.fetch = Fetch(request, node, sim.tree.lock_host(node), begin, asked, pages)
        self.fetches.append(request.fetch)

    def insert(self, fetch):
        tree, text = self.sim.tree, fetch.request.text(fetch.begin + fetch.completed)
        if fetch.completed:
            tree.lent -= fetch.completed
            tree.insert_host(fetch.node, text, fetch.begin)
        fetch.room -= fetch.completed
        tree.unlock_host(fetch.lock)
        fetch.request.fetch = None
        if fetch.stage == "reading" and self.reading and self.reading[1] is fetch:
            fetch.stage = "stopped"
        else:
            self.end(fetch)

    def end(self, fetch):
        self.sim.tree.lent -= fetch.room
        self.fetches.remove(fetch)

    def begin_next(self, now_ns):
        for fetch in self.fetches if self.reading is None else ():
            if fetch.stage in ("queued", "reading"):
                first = fetch.completed // self.sim.page
                count = len(fetch.pages[first:first + BATCH_PAGES])
                fetch.stage = "reading"
                self.reading = now_ns + self.fair_ns(count), fetch, count
                return

    def fair_ns(self, count):
        """Return how long the link takes for so many pages, which have it to themselves."""
        return self.base_ns + self.read_ns * count

    def take_notice(self, now_ns):
        while True:
            ends = [end for end in (self.reading and self.reading[0], self.writes.next_ns()) if end is not None]
            if not ends or min(ends) > now_ns:
                break
            end_ns = min(ends)
            for job, keys in self.writes.ended(end_ns):
                self.pages.update(dict.fromkeys(keys, True))
                job["left"] -= 1
                if not job["left"]:
                    self.release.append(job["lock"])
            if self.reading and self.reading[0] <= end_ns:
                _, fetch, count = self.reading
                self.reading = None
                if fetch.stage == "reading":
                    fetch.completed += count * self.sim.page
                    if fetch.completed == len(fetch.pages) * self.sim.page:
                        fetch.stage = "complete"
            self.begin_next(end_ns)
        for fetch in [each for each in self.fetches if each.stage == "asked"]:
            self.give_room(fetch)
        self.begin_next(now_ns)
        for fetch in list(self.fetches):
            if fetch.stage == "complete":
                self.insert(fetch)
            elif fetch.stage == "stopped" and not (self.reading and self.reading[1] is fetch):
                self.end(fetch)
        for lock in self.release:
            self.sim.tree.unlock_host(lock)
        self.release = []

    def give_room(self, fetch):
        sim, hits = self.sim, len(fetch.pages) * self.sim.page
        if hits >= sim.threshold and sim.tree.host_free() < hits:
            sim.tree.evict_host(hits)
            hits = min(hits, sim.tree.host_free() // sim.page * sim.page)
            sim.declined += hits < sim.threshold
        if hits < sim.threshold:
            self.insert(fetch)
            return
        fetch.pages, fetch.room, fetch.stage = fetch.pages[:hits // sim.page], hits, "queued"
        sim.tree.lent += hits

    def may_go(self, request, now_ns):
        fetch, sim = request.fetch, self.sim
        if fetch is None:
            return True
        if sim.prefetch_policy == "wait_complete":
            return False
        if sim.prefetch_policy == "timeout":
            if fetch.deadline_ns is None:
                fetch.deadline_ns = now_ns + int(sim.timeout_base_ns + sim.timeout_page_ns * (fetch.asked // sim.page))
            if now_ns < fetch.deadline_ns:
                return False
        self.insert(fetch)
        return True

    def next_ns(self):
        ends = [self.reading and self.reading[0], self.writes.next_ns()]
        ends += [fetch.deadline_ns for fetch in self.fetches if fetch.stage != "stopped"]
        ends += [0 for fetch in self.fetches if fetch.stage in ("asked", "complete")]
        return min((end for end in ends if end is not None), default=None)


class Sim:
    """One replica. `keys`: what the test has chosen, as attributes."""

    def __init__(self, requests, **keys):
        vars(self).update(keys)
        self.pages = HostPages(self.num_pages, self.page, self.policy, self.capacity, self.write_policy, self.has_store)
        self.tree, self.pool = self.pages.tree, self.num_pages * self.page
        self.arriving, self.waiting, self.running = deque(requests), [], []
        self.chunked, self.last, self.flight, self.ratio, self.full = None, [], deque(), INITIAL, False
        self.dropped_chunk, self.left, self.declined = False, False, 0
        self.store_link, self.load_link = Link(self.base_ns, self.d2h_ns), Link(self.base_ns, self.h2d_ns)
        self.store = Store(self, *self.store_ns) if self.has_store else None
        self.due, self.loaded_ns, self.waited_ns, self.hits, self.iterations = 0, 0, 0, 0, []
        if self.store:
            self.store.release = []

    def paged(self, tokens):
        return -(-tokens // self.page) * self.page

    # ---- time

    def run(self):
        now_ns = 0
        while True:
            while self.arriving and self.arriving[0].arrival_ns <= now_ns:
                self.enter(self.arriving.popleft(), now_ns)
            batch = self.pass_at(now_ns)
            if batch is not None:
                self.flight.append(batch)
            if len(self.flight) == self.depth or (self.flight and batch is None):
                now_ns = self.finish()
            elif not self.flight:
                if not (self.arriving or self.waiting or self.running or self.last or self.chunked):
                    break
                now_ns = max(now_ns, self.next_ns())

    def next_ns(self):
        ends = [self.store_link.next_ns(), self.load_link.next_ns(), self.store and self.store.next_ns(),
                self.arriving[0].arrival_ns if self.arriving else None]
        return min((end for end in ends if end is not None), default=None)

    def enter(self, request, now_ns):
        self.waiting.append(request)
        if self.store:
            found, _, host, node = self.tree.match(request.text(request.prompt + request.out - 1))
            self.store.ask(request, node, found + host, request.prompt + request.out - 1, now_ns)

    def pass_at(self, now_ns):
        self.due = len(self.tree.backups)
        for backup in self.store_link.ended(now_ns):
            self.tree.finish_backup(backup)
            backup.node.owner.stored += backup.tokens
        for load in self.load_link.ended(now_ns):
            self.tree.finish_load(load)
            load.owner.loaded += load.tokens
        if self.store:
            for text, depth, lock in self.tree.extents:
                self.store.write(text, depth, lock, now_ns)
            self.tree.extents.clear()
            self.store.take_notice(now_ns)
        self.now_ns = now_ns
        batch = self.choose()
        self.launch(batch, now_ns)
        return batch

    def launch(self, batch, now_ns):
        free_ns = self.flight[-1].end_ns if self.flight else now_ns
        launch_ns, begin_ns, loaded_ns = now_ns, max(now_ns, free_ns), 0
        if self.tree.write_back and self.tree.backups:
            for backup in self.tree.backups:
                launch_ns = self.store_link.begin([], backup.tokens // self.page, max(launch_ns, begin_ns))
                self.store_link.ended(launch_ns)
                backup.node.owner.stored += backup.tokens
            self.tree.backups.clear()
            self.waited_ns += launch_ns - begin_ns
        elif self.due:
            due, self.tree.backups[:] = self.tree.backups[:self.due], self.tree.backups[self.due:]
            self.store_link.begin(due, sum(each.tokens for each in due) // self.page, begin_ns)
        start_ns = max(launch_ns, free_ns)
        if self.tree.loads:
            loads, self.tree.loads[:] = list(self.tree.loads), []
            loaded_ns = self.load_link.begin(loads, sum(each.tokens for each in loads) // self.page, start_ns)
        if batch is None:
            return
        executes_ns, loads_ns = self.latency_ns(batch), max(loaded_ns - start_ns, 0)
        stays_ns = rounded(loads_ns / self.layers + max(loads_ns - executes_ns, 0) * (1 - 1 / self.layers))
        batch.start_ns, batch.end_ns = start_ns, start_ns + executes_ns + stays_ns
        self.iterations.append((batch.start_ns, batch.end_ns, len(batch.requests)))

    def latency_ns(self, batch):
        base_us, sequence_us, token_us, context_us = self.prices_us
        tokens = sum(scheduled for _, scheduled, _ in batch.requests) * token_us if batch.is_prefill else (
            batch.context * context_us)
        return rounded((base_us + sequence_us * len(batch.requests) + tokens) * 1000)

    # ---- a pass

    def choose(self):
        if self.chunked and self.chunked.computed > self.chunked.published:
            self.publish(self.chunked, self.chunked.computed)
        if self.left or self.dropped_chunk or (not self.running and self.last):
            self.full = False
        self.running += self.last
        self.last, self.left, self.dropped_chunk = [], False, False
        batch = self.prefill()
        if batch is None and self.running:
            batch = self.decode()
        if not (batch or self.running or self.waiting or self.flight or self.chunked):
            self.ratio = INITIAL
        return batch

    def owed(self, request):
        return min(request.most - request.out, MOST) * self.ratio

    def verdict(self):
        available = self.pages.available()
        if available - self.total <= 0 or available - self.current <= 0:
            return "full"
        return "stop" if self.inputs <= 0 or self.chunk <= 0 else "go"

    def charge(self, tokens, new):
        tokens = self.paged(tokens)
        self.total += tokens + self.page + new
        self.current += tokens + self.page
        self.inputs -= tokens
        self.chunk -= tokens

    def prefill(self):
        if not self.running:
            self.full = False
        if (self.full or not self.waiting) and not self.chunked:
            return None
        self.admitted, self.num_old = [], 0
        if self.slots(0) <= 0 and not self.chunked:
            self.full = True
            return None
        self.refresh()
        self.inputs, self.chunk = self.most_inputs, self.chunk_tokens
        self.total, self.current = sum(map(self.owed, self.running)), 0
        if self.chunked and not self.go_on():
            return None
        self.admit_waiting()
        if not self.admitted:
            return None
        return self.take_pages()

    def slots(self, held):
        """Return how many may be in a batch of prompts, `held` of which had places before."""
        rows = self.max_running - (len(self.pages.holds) - (len(self.admitted) - self.num_old))
        return min(self.max_running - len(self.running), max(rows + held, 0))

    refreshes = 0

    def refresh(self):
        """Note the use of the prefixes of those who wait, every 32nd time."""
        if self.policy == "lru" and self.waiting:
            self.refreshes += 1
            for request in reversed(self.waiting[:128]) if self.refreshes % 32 == 1 else ():
                self.tree.match(request.text(request.prompt + request.out))

    def go_on(self):
        request = self.chunked
        rest = request.prompt + request.out - request.computed
        most = min(self.chunk, int(self.pages.available() - self.total))
        most = most if most > 0 else self.chunk
        scheduled = min(rest, most)
        if self.paged(request.computed + scheduled) - self.paged(request.computed) > self.pages.available():
            return False
        self.admitted.append((request, scheduled, rest > most))
        self.charge(scheduled, 0 if rest > most else min(request.most, MOST))
        self.chunked = request if rest > most else None
        return True

    def admit_waiting(self):
        self.num_old = len(self.admitted)
        for request in list(self.waiting):
            if self.verdict() == "stop":
                break
            if len(self.admitted) >= self.slots(self.num_old):
                self.full = True
            if self.full:
                break
            if self.store and not self.store.may_go(request, self.now_ns):
                continue
            verdict = self.admit(request)
            if verdict != "go":
                if verdict == "full":
                    self.full = bool(self.admitted or self.running)
                break
        for request, _, is_cut in self.admitted:
            if is_cut:
                self.chunked = request

    def admit(self, request):
        text = request.prompt + request.out
        found, node, host, host_node = self.tree.match(request.text(text - 1))
        self.pages.keep(request, node, found)
        answer = self.fits(request, found, host)
        loaded = 0
        if isinstance(answer, tuple) and host:
            loaded = host if self.pages.load_back(request, host_node, host, request) else 0
            answer = answer if loaded else self.fits(request, found, 0)
        if not isinstance(answer, tuple):
            self.pages.release(request)
            return answer
        scheduled, is_cut = answer
        self.waiting.remove(request)
        request.computed = request.published = found + loaded
        request.held = True
        self.hits += loaded
        if request.cached is None:
            request.cached = min(found + loaded, request.prompt)
        self.admitted.append((request, scheduled, is_cut))
        self.charge(scheduled, 0 if is_cut else min(request.most, MOST))
        return self.verdict()

    def fits(self, request, found, host):
        rest = request.prompt + request.out - found
        if rest + min(max(request.most - request.out, 0), MOST) + self.page >= self.pages.available() - self.total:
            return "full"
        rest, found, is_cut = rest - host, found + host, False
        if self.paged(rest) > self.chunk:
            rest, is_cut = (found + self.chunk // self.page * self.page) // self.page * self.page - found, True
            if rest <= 0:
                return "stop"
        if self.admitted and self.paged(rest) >= self.inputs:
            return "stop"
        return rest, is_cut

    def take_pages(self):
        tokens = sum(scheduled for _, scheduled, _ in self.admitted)
        self.pages.make_room(tokens + (len(self.admitted) * self.page if self.page > 1 else 0))
        batch = Batch([], True)
        for request, scheduled, is_cut in self.admitted:
            self.pages.take(request, request.computed + scheduled)
            request.computed += scheduled
            batch.requests.append((request, scheduled, is_cut))
            if is_cut:
                self.dropped_chunk = True
            else:
                self.last.append(request)
        return batch

    # ---- decodes

    def decode(self):
        kept = [each for each in self.running if not (
            self.depth == 2 and self.in_flight(each) and each.out + 1 >= each.most)]
        left_out = len(kept) < len(self.running)
        if left_out:
            self.running, self.full = kept, False
        if not self.running:
            self.full = False
            return None
        if self.decodes_fit(self.running):
            self.ratio = max(self.ratio - (INITIAL - INITIAL * LEAST) / STEPS, INITIAL * LEAST)
        elif left_out:
            return None
        elif not self.give_up_chunk():
            self.retract()
        if not self.running:
            return None
        self.pages.make_room(len(self.running) * self.page)
        for request in self.running:
            self.pages.take(request, self.pages.holds[request].tokens + 1)
            request.computed += 1
        return Batch([(each, 1, False) for each in self.running], False,
                     context=sum(self.pages.holds[each].tokens for each in self.running))

    def in_flight(self, request):
        return any(each is request for batch in self.flight for each, *_ in batch.requests
                   if request not in batch.stale)

    def decodes_fit(self, requests):
        need = sum(self.pages.holds[each].tokens % self.page == 0 for each in requests) * self.page
        self.pages.make_room(need)
        return self.pages.blank * self.page >= need

    def put_back(self, request, left):
        self.pages.release(request)
        for batch in self.flight:
            batch.stale.add(request)
        request.held = False
        self.pages.make_room(left * RETRACT_STEPS)

    def give_up_chunk(self):
        if not self.chunked:
            return False
        request, self.chunked = self.chunked, None
        self.put_back(request, len(self.running))
        self.enter(request, self.now_ns)
        return self.decodes_fit(self.running)

    def retract(self):
        order, gone = sorted(self.running, key=lambda each: (-each.out, each.prompt)), []
        self.full = False
        while len(order) > 1 and (not gone or not self.decodes_fit(order)):
            gone.append(order.pop())
            self.put_back(gone[-1], len(order))
        if len(order) == 1 and not self.decodes_fit(order):
            raise NotImplementedError("one who runs alone is given up")
        self.running = order
        self.ratio = min(1.0, (sum(each.out for each in order) + RETRACT_STEPS * len(order)) / (
            sum(each.most for each in order) + 1))
        for request in gone:
            self.enter(request, self.now_ns)

    # ---- results

    def publish(self, request, tokens):
        request.published = tokens
        self.pages.publish(request, request.text(tokens), request.prompt, 0, request)

    def finish(self):
        batch = self.flight.popleft()
        for request, _, is_cut in batch.requests:
            if request in batch.stale or request.done_ns >= 0 or is_cut:
                continue
            request.out += 1
            if request.out == 1:
                request.first_ns = batch.end_ns
            if request.out == request.output:
                self.complete(request, batch.end_ns)
            elif batch.is_prefill:
                self.publish(request, self.prefilled(request, batch))
        return batch.end_ns

    def prefilled(self, request, batch):
        """Return the tokens that it had computed with a batch of prompts."""
        later = sum(scheduled for each in self.flight for other, scheduled, _ in each.requests if other is request)
        return request.computed - later

    def complete(self, request, now_ns):
        request.done_ns = now_ns
        self.publish(request, min(self.pages.holds[request].tokens, request.prompt + request.out))
        self.pages.release(request)
        self.left = True
        self.running = [each for each in self.running if each is not request]
        self.last = [each for each in self.last if each is not request]
