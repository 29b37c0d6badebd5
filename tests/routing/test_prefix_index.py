"""The router-side prefix index against a model that stores every block."""
from collections import OrderedDict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.faces import context_of, view_of, workload
from simulator.routing.parts.prefix_index import PrefixIndex

BLOCK = 4


class Naive:
    """One ordered dict of blocks per replica; a block is the tuple of all (stream, tokens) up to its end."""

    def __init__(self, prompts, num_replicas, capacity):
        self.prompts, self.capacity = prompts, capacity
        self.lru = [OrderedDict() for _ in range(num_replicas)]

    def blocks(self, row):
        tokens = [(name or f"own{row}", place) for name, length in self.prompts[row] for place in range(length)]
        return [tuple(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK)]

    def matched(self, row):
        counts = []
        for lru in self.lru:
            present = [block in lru for block in self.blocks(row)]
            counts.append(present.index(False) if False in present else len(present))
        return counts

    def send(self, row, replica):
        lru = self.lru[replica]
        for block in self.blocks(row):
            lru[block] = None
            lru.move_to_end(block)
            while len(lru) > self.capacity:
                lru.popitem(last=False)


PIECES = st.lists(st.tuples(st.sampled_from(["a", "b", "", ""]), st.integers(1, 30)), min_size=1, max_size=4)


def one_own_piece_last(pieces):
    """Keep one own piece at most: two would begin with the same tokens."""
    own = [piece for piece in pieces if not piece[0]][:1]
    return [piece for piece in pieces if piece[0]] + own


@pytest.mark.ci
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(PIECES.map(one_own_piece_last), min_size=1, max_size=6), st.sampled_from([1, 2, 65, 130]),
       st.integers(1, 12), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 129), st.booleans()), max_size=30))
def test_it_holds_what_a_model_of_single_blocks_holds(prompts, num_replicas, capacity, steps):
    index = PrefixIndex(context_of(view_of(num_replicas), workload(prompts), block_size=BLOCK), capacity)
    naive = Naive(prompts, num_replicas, capacity)
    for row, replica, is_closed in steps:
        row, replica = row % len(prompts), replica % num_replicas
        if is_closed and row == 0:
            index.note_closed(replica)
            naive.lru[replica].clear()
        else:
            index.note_sent(row, replica)
            naive.send(row, replica)
        index.check()

        assert [index.matched_blocks(each) for each in range(len(prompts))] == [
            naive.matched(each) for each in range(len(prompts))]
        assert index.num_held(replica) == len(naive.lru[replica])


def index_of(prompts, num_replicas=2, capacity=100):
    return PrefixIndex(context_of(view_of(num_replicas), workload(prompts), block_size=BLOCK), capacity)


def test_a_shared_beginning_is_found_where_it_was_sent():
    # 10 shared tokens are 2 whole blocks of 4; the third block holds own tokens
    index = index_of([[("sys", 10), ("", 6)], [("sys", 10), ("", 9)]])

    index.note_sent(0, 1)

    assert index.matched_blocks(1) == [0, 2]


def test_the_whole_prompt_is_found_when_the_same_request_is_sent_again():
    index = index_of([[("sys", 10), ("", 6)]])

    index.note_sent(0, 1)

    assert index.matched_blocks(0) == [0, 4]


def test_a_prompt_shorter_than_a_block_leaves_nothing():
    index = index_of([[("sys", 3)]])

    index.note_sent(0, 0)

    assert index.num_held(0) == 0
    assert index.matched_blocks(0) == [0, 0]


def test_private_text_pushes_out_what_is_older():
    # capacity 5: 3 blocks of "sys", then 4 private ones leave 1 of the 3, the last; its beginning is gone
    index = index_of([[("sys", 12)], [("", 16)], [("sys", 12)]], capacity=5)

    index.note_sent(0, 0)
    index.note_sent(1, 0)

    assert index.num_held(0) == 5
    assert index.matched_blocks(2) == [0, 0]


@pytest.mark.parametrize("num_replicas", [1, 64, 65, 512])
def test_any_number_of_replicas_fits(num_replicas):
    index = index_of([[("sys", 8)]], num_replicas)

    index.note_sent(0, num_replicas - 1)

    assert index.matched_blocks(0) == [0] * (num_replicas - 1) + [2]


@pytest.mark.parametrize("seed", range(3))
def test_blocks_are_forgotten_when_their_time_has_passed(seed):
    rng, now_ns = Random(seed), 0
    prompts = [[(rng.choice("ab"), rng.choice([8, 16, 40])), ("", rng.choice([0, 4, 20]))] for _ in range(30)]
    prompts = [[piece for piece in prompt if piece[1]] for prompt in prompts]
    index = PrefixIndex(context_of(view_of(3), workload(prompts), block_size=BLOCK), 1000, ttl_ns=50)
    naive, last = Naive(prompts, 3, 1000), {}
    for _ in range(3000):               # so many that the ring of touches grows
        now_ns += rng.choice([0, 0, 0, 1, 7]) if rng.random() < 0.98 else 40
        index.note_time(now_ns)
        for replica, lru in enumerate(naive.lru):
            for block in [block for block in lru if last[replica, block] <= now_ns - 50]:
                del lru[block]
        row, replica = rng.randrange(len(prompts)), rng.randrange(3)
        assert index.matched_blocks(row) == naive.matched(row)
        index.note_sent(row, replica)
        naive.send(row, replica)
        last |= {(replica, block): now_ns for block in naive.blocks(row)}
    index.check()
