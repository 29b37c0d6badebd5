"""SGLang's radix tree with copies in host memory: what is copied when, what goes from where, what is brought back."""
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.texts import text_of, workload_of
from oracle.hicache import HostPages
from oracle.radix import ORDERS
from simulator.domain import records
from simulator.kv.content import Content
from simulator.kv.radix import RadixKV
from simulator.kv.radix_host import HostSettings
from support.kv_faces import HostTreeFace

A, B, C, D = (records.named_stream(code) for code in range(4))
NUM_SLOTS = 4
POLICIES = ("write_through", "write_through_selective", "write_back")


@pytest.fixture
def new():
    """Return the face of a new cache for prompts."""
    def new_cache(prompts, pages=100, host=100, write_policy="write_through", policy="lru", page_size=1):
        kv = RadixKV(pages, page_size, Content(workload_of(prompts)), True, policy,
                     HostSettings(host * page_size, write_policy))
        return HostTreeFace(kv, NUM_SLOTS)

    return new_cache


def serve(face, row, tokens, slot=0, loads=True):
    """Let a request compute all of its text that is not there, and leave; return what it found, and what was loaded."""
    found, host, node, host_node = face.find(row, tokens - 1)
    face.keep(slot, node, found)
    loaded = host if loads and host and face.load_back(slot, host_node, host, row) else 0
    assert face.take(slot, tokens)
    face.publish(slot, row, tokens, tokens, 0)
    face.release(slot)
    face.finish_backups()
    face.finish_loads()
    return found, loaded


def sides(face):
    """Return (tokens, on the accelerator, in host memory) of all nodes."""
    return [(tokens, device, host) for _, tokens, device, host, *_ in face.kv.tree.sides()]


# A has 30 tokens. It is served twice, then B needs all 40 pages.
@pytest.mark.parametrize(("write_policy", "after_one", "after_two", "after_b", "found"), [
    ("write_through", [(30, True, True)], [(30, True, True)], [(30, False, True), (38, True, True)], (0, 29)),
    ("write_through_selective", [(30, True, False)], [(30, True, True)], [(30, False, True), (38, True, False)],
     (0, 29)),
    ("write_back", [(30, True, False)], [(30, True, False)], [(30, False, True), (38, True, False)], (0, 29))])
def test_when_a_node_is_copied(new, write_policy, after_one, after_two, after_b, found):
    face = new([[(A, 30)], [(B, 38)]], 40, write_policy=write_policy)
    serve(face, 0, 30)
    assert sides(face) == after_one
    serve(face, 0, 30)
    assert merged(sides(face)) == after_two             # 29 tokens were found: the second one split it
    serve(face, 1, 38)
    assert merged(sides(face)) == after_b
    assert face.find(0, 29)[:2] == found


def merged(nodes):
    """Put the two parts of A together."""
    if len(nodes) == 1:
        return nodes
    return sorted([(30, *nodes[0][1:])] + [node for node in nodes if node[0] not in (1, 29)])


def test_selective_forgets_what_came_once(new):
    face = new([[(A, 30)], [(B, 38)]], 40, write_policy="write_through_selective")
    serve(face, 0, 30)
    serve(face, 1, 38)

    assert sides(face) == [(38, True, False)]
    assert face.find(0, 29)[:2] == (0, 0)


def test_those_above_are_copied_first(new):
    # A's first five tokens come twice, so they are copied; what follows came once each, until C comes again
    face = new([[(A, 5), (B, 20)], [(A, 5), (C, 20)]], write_policy="write_through_selective")
    serve(face, 0, 25)
    serve(face, 1, 25)
    assert sides(face) == [(5, True, True), (20, True, False), (20, True, False)]
    face.find(1, 24)
    face.keep(0, face.find(1, 25)[2], 25)
    face.publish(0, 1, 25, 25, 0)                       # by someone who has counted none of it
    assert sorted(sides(face)) == [(1, True, True), (5, True, True), (19, True, True), (20, True, False)]


def test_what_is_being_copied_is_locked(new):
    face = new([[(A, 30)], [(B, 5)]], 40)
    face.keep(0, 0, 0)
    face.take(0, 30)
    face.publish(0, 0, 30, 30, 0)
    face.release(0)

    assert face.counts() == (1, 0, 0)
    assert face.kv.tokens_free == (10, 0, 30)           # the copy holds it
    face.finish_backups()
    assert face.kv.tokens_free == (10, 30, 0)


def test_fewer_than_ten_tokens_are_computed_anew(new):
    face = new([[(A, 10)], [(A, 11)], [(B, 38)]], 40)
    serve(face, 0, 10)
    serve(face, 2, 38)
    assert serve(face, 0, 10) == (0, 0)                 # 9 of 10 tokens were there
    serve(face, 2, 38)
    assert serve(face, 1, 11) == (0, 10)


def test_what_is_computed_anew_is_on_the_accelerator_again(new):
    face = new([[(A, 9)], [(B, 38)]], 40)
    serve(face, 0, 9)
    serve(face, 1, 38)
    assert sides(face) == [(9, False, True), (38, True, True)]
    assert serve(face, 0, 9) == (0, 0)
    assert merged_sum(sides(face)) == (9, 47)           # B has gone for it; its copy has not
    assert face.kv.tokens_free == (31, 9, 0)


def merged_sum(nodes):
    """Return the tokens on the accelerator, and those in host memory."""
    return tuple(sum(node[0] for node in nodes if node[side]) for side in (1, 2))


# Of three texts of 10 tokens host memory has room for 25: the first of the policy goes whole for the third.
@pytest.mark.parametrize(("policy", "gone"), [("lru", 1), ("mru", 0), ("fifo", 0), ("filo", 1)])
def test_host_memory_gives_up_leaves_in_the_order_of_the_policy(new, policy, gone):
    face = new([[(A, 10)], [(B, 10)], [(C, 10)]], 30, 25, policy=policy)
    for row in (0, 1):
        serve(face, row, 10)
    face.make_room(30)                                  # both are in host memory alone
    assert [face.find(row, 10)[1] for row in (1, 0)] == [10, 10]        # A is used last
    serve(face, 2, 10)

    assert [face.find(row, 10)[:2] for row in (0, 1, 2)] == [
        (0, 0) if row == gone else (0, 10) if row < 2 else (10, 0) for row in (0, 1, 2)]


def test_a_full_host_copies_nothing_as_long_as_all_it_has_is_on_the_accelerator(new):
    face = new([[(A, 10)], [(B, 10)]], 40, 15)
    serve(face, 0, 10)
    serve(face, 1, 10)

    assert sides(face) == [(10, True, False), (10, True, True)]
    assert face.kv.tree.num_refused == 1
    face.make_room(40)
    assert sides(face) == [(10, False, True)]


def test_what_finds_no_room_has_let_all_go_that_could(new):
    face = new([[(A, 10)], [(B, 10)], [(C, 30)]], 30, 25)
    for row in (0, 1, 2):
        serve(face, row, (10, 10, 30)[row])             # 25 tokens are too few for C, which SGLang sees at the end

    assert sides(face) == [(30, True, False)]
    assert (face.kv.tree.host_evicted, face.kv.tree.num_refused) == (20, 1)


def test_write_back_drops_what_finds_no_room(new):
    face = new([[(A, 20)], [(B, 10)]], 40, 15, "write_back")
    serve(face, 0, 20)
    serve(face, 1, 10)
    face.make_room(40)

    assert sides(face) == [(10, False, True)]           # A has more tokens than host memory
    assert face.kv.tree.num_refused == 1


def test_write_back_gives_copies_up_of_what_is_on_the_accelerator(new):
    face = new([[(A, 12)], [(B, 12)]], 40, 15, "write_back")
    serve(face, 0, 12)
    face.make_room(40)
    found, host, node, host_node = face.find(0, 12)
    face.keep(0, node, found)
    assert face.load_back(0, host_node, host, 0)        # A is in both
    face.finish_loads()
    serve(face, 1, 12, slot=1)
    face.make_room(28)                                  # there are 16 blank pages: B has to go

    assert sorted(sides(face)) == [(12, False, True), (12, True, False)]


# ---- random use, against the twin

def random_prompts(rng):
    """Return prompts that often begin alike."""
    return [[(rng.choice([A, A, B, C]), rng.randint(1, 16)) for _ in range(rng.randint(1, 4))]
            for _ in range(rng.randint(3, 8))]


class Both:
    """The compiled tree and the twin, told the same."""

    def __init__(self, face, twin, prompts, workload):
        self.face, self.twin, self.prompts = face, twin, prompts
        self.lengths = workload.requests["prompt_tokens"].tolist()
        self.rows = {}

    def begin(self, slot, row, extra, loads):
        text = self.lengths[row] + extra
        found, host, node, host_node = self.face.find(row, text - 1)
        there = self.twin.tree.match(text_of(self.prompts, row, text - 1))
        assert (found, host) == (there[0], there[2])
        self.face.keep(slot, node, found)
        self.twin.keep(slot, there[1], found)
        if host and loads:
            assert self.face.load_back(slot, host_node, host, row) == self.twin.load_back(slot, there[3], host, row)
        held = self.twin.holds[slot].tokens
        self.rows[slot] = row, held
        self.grow(slot, max(text, held) - held)
        if self.rows[slot][1] < text and held < text:
            self.release(slot)

    def grow(self, slot, more):
        row, held = self.rows[slot]
        page = self.twin.page_size
        need = (self.twin.pages(held + more) - self.twin.pages(held)) * page
        has_room = need <= self.twin.available()
        if has_room:
            self.twin.make_room(need)
            has_room = need <= self.twin.blank * page
        assert self.face.take(slot, held + more) == has_room
        if has_room:
            self.twin.take(slot, held + more)
            self.rows[slot] = row, held + more

    def publish(self, slot, share, priority):
        row, held = self.rows[slot]
        length = max(held * share // 4, self.twin.holds[slot].shared)
        self.face.publish(slot, row, length, self.lengths[row], priority)
        self.twin.publish(slot, text_of(self.prompts, row, length), self.lengths[row], priority)

    def release(self, slot):
        del self.rows[slot]
        self.face.release(slot)
        self.twin.release(slot)

    def finish(self, what):
        tree = self.twin.tree
        if what == 0:
            self.face.finish_backups()
            for backup in tree.backups if not tree.write_back else ():
                tree.finish_backup(backup)
            tree.backups.clear()
        elif what == 1:
            self.face.finish_loads()
            for load in tree.loads:
                tree.finish_load(load)
            tree.loads.clear()
        else:
            self.face.finish_extents()
            for _, _, lock in tree.extents:
                tree.unlock_host(lock)
            tree.extents.clear()

    def read_below(self, row):
        page = self.twin.page_size
        end = self.lengths[row] // page * page
        found, host, _, host_node = self.face.find(row, self.lengths[row])
        there = self.twin.tree.match(text_of(self.prompts, row, self.lengths[row]))
        end, node = end - end // page % 2 * page, there[3]
        if found + host >= end or not (node is self.twin.tree.root or node.host):
            return
        lacking = end - found - host - self.twin.tree.host_free()
        lock = self.twin.tree.lock_host(node)
        if self.face.insert_host(host_node, row, found + host, end):
            if lacking > 0:
                self.twin.tree.evict_host(lacking)
            self.twin.tree.insert_host(node, text_of(self.prompts, row, end), found + host)
        else:
            assert self.twin.tree.evict_host(lacking) < lacking
        self.twin.tree.unlock_host(lock)

    def compare(self):
        tree = self.twin.tree
        assert self.face.kv.tree.sides() == sorted(
            (node.depth, len(node.tokens), node.device, node.host, node.locks, len(node.host_locks), node.hits)
            for node in tree.nodes())
        assert self.face.kv.tokens_free == (
            self.twin.blank * self.twin.page_size, self.twin.evictable(), self.twin.protected())
        assert (self.face.kv.tree.host_free, self.face.kv.tree.host_evicted, self.face.kv.tree.num_refused,
                self.face.kv.tree.evicted) == (tree.host_free(), tree.host_evicted, tree.refused, tree.evicted)
        assert self.face.counts() == (len(tree.backups), len(tree.loads), len(tree.extents))
        self.face.kv.tree.check()


def play(seed):
    """Let both do the same."""
    rng = Random(seed)
    prompts, page_size, policy = random_prompts(rng), rng.choice([1, 1, 2, 3]), rng.choice(sorted(ORDERS))
    pages, write_policy = rng.randint(6, 80), rng.choice(POLICIES)
    has_store = write_policy != "write_back" and rng.random() < 0.5
    capacity = rng.choice([5, 20, 60, 200]) * page_size
    workload = workload_of(prompts)
    kv = RadixKV(pages, page_size, Content(workload), True, policy, HostSettings(capacity, write_policy, has_store))
    both = Both(HostTreeFace(kv, NUM_SLOTS),
                HostPages(pages, page_size, policy, capacity, write_policy, has_store), prompts, workload)
    for _ in range(rng.randint(5, 100)):
        slot, kind = rng.randrange(NUM_SLOTS), rng.random()
        if kind < 0.15:
            both.finish(rng.randrange(3))
        elif kind < 0.2 and has_store:
            both.read_below(rng.randrange(len(prompts)))
        elif slot not in both.rows:
            both.begin(slot, rng.randrange(len(prompts)), rng.randrange(5), rng.random() < 0.9)
        elif kind < 0.4:
            both.grow(slot, rng.randint(1, 3))
        elif kind < 0.7:
            both.publish(slot, rng.randrange(5), rng.randrange(3))
        else:
            both.release(slot)
        both.compare()


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 10**6))
def test_random_use_is_that_of_the_twin(seed):
    play(seed)
