"""SGLang's radix tree by itself: splits, locks, the seven orders of eviction, texts that are published twice."""
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.texts import text_of, workload_of
from oracle.radix import ORDERS, Pages
from simulator.domain import records
from simulator.kv.content import Content
from simulator.kv.radix import EVICTIONS, RadixKV
from support.kv_faces import RadixFace

A, B, C = (records.named_stream(code) for code in range(3))
NUM_SLOTS = 4


@pytest.fixture
def new():
    """Return the face of a new cache for prompts."""
    def new_cache(prompts, page_size=1, policy="lru", num_pages=1000, caches=True):
        content = Content(workload_of(prompts))
        return RadixFace(RadixKV(num_pages, page_size, content, caches, policy), NUM_SLOTS)

    return new_cache


def test_a_walk_splits_an_edge_where_texts_part(new):
    face = new([[(A, 8)], [(A, 5), (B, 4)]])
    assert face.insert(0, 8)[0] == 0
    face.insert(0, 8, priority=2)

    assert face.match(1, 9)[0] == 5
    assert face.nodes() == [(0, 5, 0, 2, 2), (5, 3, 0, 2, 2)]           # either half has hits and priority
    assert face.insert(1, 9)[0] == 5
    assert face.nodes() == [(0, 5, 0, 3, 2), (5, 3, 0, 2, 2), (5, 4, 0, 1, 0)]


def test_what_a_split_leaves_below_counts_as_used(new):
    face = new([[(A, 8)], [(B, 3)], [(A, 5), (C, 1)]])
    face.insert(0, 8)
    face.insert(1, 3)
    face.match(2, 6)                                                    # A's last three tokens are in nobody's way

    assert face.evict() == 3
    assert face.match(1, 3)[0] == 0                                     # it was B's


@pytest.mark.parametrize(("page_size", "found"), [(1, 7), (2, 6), (4, 4), (8, 0)])
def test_pages_are_found_whole(new, page_size, found):
    face = new([[(A, 16)], [(A, 7), (B, 9)]], page_size)
    face.insert(0, 16)

    assert face.match(1, 16)[0] == found
    assert face.match(0, page_size - 1) == (0, 0)
    assert face.match(0, 16)[0] == 16


def test_a_lock_holds_a_path_and_what_splits_it(new):
    face = new([[(A, 8)], [(A, 5), (B, 4)], [(C, 3)]])
    _, end = face.insert(0, 8)
    face.lock(end, 1)
    face.match(1, 9)
    face.insert(1, 9)
    face.insert(2, 3)

    assert (face.kv.tree.evictable, face.kv.tree.protected) == (7, 8)
    assert [face.evict() for _ in range(3)] == [4, 3, 0]                # B's, C's, and no more
    face.lock(end, -1)
    assert [face.evict() for _ in range(3)] == [3, 5, 0]                # a parent after its child
    assert (face.kv.tree.evictable, face.kv.tree.protected, face.kv.tree.evicted) == (0, 0, 15)


# Lengths tell leaves apart: 1 is made first, then 2, 3, 4; 2 has three hits, 1 two, the others one; 1 is used last, 3
# before it, 4, 2; 3 has priority 5, 2 has 1.
@pytest.mark.parametrize(("policy", "order"), [
    ("lru", [2, 4, 3, 1]), ("mru", [1, 3, 4, 2]), ("lfu", [4, 3, 1, 2]), ("fifo", [1, 2, 3, 4]),
    ("filo", [4, 3, 2, 1]), ("priority", [4, 1, 2, 3]), ("slru", [4, 3, 2, 1])])
def test_leaves_go_in_the_order_of_the_policy(new, policy, order):
    face = new([[(A, 1)], [(B, 2)], [(C, 3)], 4], policy=policy)
    for row, priority in enumerate([0, 1, 5, 0]):
        face.insert(row, row + 1, priority)
    for row in (0, 1, 1):
        face.insert(row, row + 1)
    for row in (3, 2, 0):
        face.match(row, row + 1)

    assert [face.evict() for _ in order] == order
    assert set(EVICTIONS) == set(ORDERS)


def test_what_is_computed_twice_is_kept_once(new):
    face = new([[(A, 8)], [(A, 8)]], page_size=2, num_pages=20)
    assert [face.begin(slot, row, 7, 8) for slot, row in ((0, 0), (1, 1))] == [0, 0]
    assert face.kv.tokens_free == (24, 0, 0)

    face.publish(0, 0, 8, 8, 0)
    assert face.kv.tokens_free == (24, 0, 8)
    face.publish(1, 1, 8, 8, 0)                     # its own four pages are free
    assert face.kv.tokens_free == (32, 0, 8)
    face.publish(1, 1, 8, 8, 0)                     # and that was all
    assert face.kv.tokens_free == (32, 0, 8)
    for slot in (0, 1):
        face.release(slot)
    assert face.kv.tokens_free == (32, 8, 0)


def test_a_prompt_is_a_node_of_its_own_where_an_answer_follows(new):
    face = new([[(A, 6)]])
    face.begin(0, 0, 5, 9)
    face.publish(0, 0, 9, 6, 3)

    assert face.nodes() == [(0, 6, 1, 1, 4), (6, 3, 1, 1, 3)]


def test_without_a_tree_nothing_is_found(new):
    face = new([[(A, 8)], [(A, 8)]], caches=False)
    face.begin(0, 0, 7, 8)
    face.publish(0, 0, 8, 8, 0)
    face.release(0)

    assert face.begin(1, 1, 7, 8) == 0
    assert face.nodes() == []


# ---- random use, against the twin

def random_prompts(rng):
    """Return prompts that often begin alike, and some that continue an answer."""
    return [rng.randint(1, 12) if rng.random() < 0.1 else [
        (rng.choice([A, A, B, records.output_stream(0)]), rng.randint(1, 7)) for _ in range(rng.randint(1, 4))]
        for _ in range(rng.randint(3, 8))]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 10**6))
def test_random_use_is_that_of_the_twin(seed):
    rng = Random(seed)
    prompts, page_size, policy, num_pages = (
        random_prompts(rng), rng.choice([1, 1, 2, 3, 4]), rng.choice(sorted(ORDERS)), rng.randint(4, 80))
    steps = [(rng.randrange(NUM_SLOTS), rng.randrange(100), rng.randrange(3), rng.randrange(10))
             for _ in range(rng.randint(1, 80))]
    workload = workload_of(prompts)
    kv = RadixKV(num_pages, page_size, Content(workload), True, policy)
    face, twin, rows = RadixFace(kv, NUM_SLOTS), Pages(num_pages, page_size, policy), {}
    for slot, number, priority, kind in steps:
        if slot not in rows:
            row = number % len(prompts)
            text = int(workload.requests["prompt_tokens"][row]) + number % 5
            found = face.begin(slot, row, text - 1, text)
            assert found == twin.begin(slot, text_of(prompts, row, text - 1), text)
            if found >= 0:
                rows[slot] = row, text
        elif kind < 3:
            row, text = rows[slot]
            if face.grow(slot, text + 1 + kind) != twin.grow(slot, text + 1 + kind):
                raise AssertionError("one has room")
            rows[slot] = row, twin.holds[slot].tokens
        elif kind < 8:
            row, text = rows[slot]
            # what was published stays: a later one is longer
            length = max(text * (kind - 2) // 5, twin.holds[slot].shared)
            prompt = int(workload.requests["prompt_tokens"][row])
            face.publish(slot, row, length, prompt, priority)
            twin.publish(slot, text_of(prompts, row, length), prompt, priority)
        else:
            del rows[slot]
            face.release(slot)
            twin.release(slot)
        compare(face, twin)
    for slot in rows:
        face.release(slot)
        twin.release(slot)
    while face.nodes():
        assert face.evict() == twin.tree.evict()
        assert face.nodes() == shape(twin.tree)


def compare(face, twin):
    """Check that both have the same nodes and free tokens."""
    assert face.nodes() == shape(twin.tree)
    assert face.kv.tokens_free == (twin.blank * twin.page_size, twin.evictable(), twin.protected())
    assert face.kv.tree.evicted == twin.tree.evicted
    face.kv.tree.check()


def shape(tree):
    """Return what `RadixFace.nodes` does."""
    found = []
    for node in tree.nodes():
        depth, above = 0, node.parent
        while above is not None:
            depth, above = depth + len(above.tokens), above.parent
        found.append((depth, len(node.tokens), node.locks, node.hits, node.priority))
    return sorted(found)
