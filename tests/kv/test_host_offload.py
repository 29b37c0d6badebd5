"""Blocks that move to host memory and come back, against BLIS's rules in plain Python, used at random, and by hand."""
import random
from collections import Counter

from kv.offload_model import OffloadModel
from kv.test_kv_machine import known_text
from kv.texts import workload_of
from simulator.domain import records
from simulator.kv.blis_cache import BlisKV
from simulator.kv.content import Content
from simulator.kv.tiers.host_offload import HostOffload
from support.kv_faces import OffloadFace

NUM_SLOTS = 4
RELOAD_NS = 19_000
COUNTS = ("moved", "replaced", "reloaded", "thrashed")
STREAM, OUTPUTS = records.named_stream(0), records.output_stream(0)
SHARED, SHARED_2 = [(STREAM, 4)], [(STREAM, 2)]


class Pair:
    """Both, told the same."""

    def __init__(self, prompts, num_blocks, block_size, capacity, threshold):
        workload = workload_of(prompts)
        content = Content(workload)
        self.prompts, self.block_size = prompts, block_size
        self.lengths = workload.requests["prompt_tokens"].tolist()
        self.kv, self.host = BlisKV(num_blocks, block_size, content), HostOffload(capacity, threshold, RELOAD_NS)
        self.host.attach(self.kv, content)
        self.ours = OffloadFace(self.kv, NUM_SLOTS, self.host)
        self.model = OffloadModel(num_blocks, block_size, capacity, threshold)
        self.hash_of = {}

    def begins(self, now_us):
        self.model.now = now_us
        self.ours.begins(1000 * now_us)

    def text(self, row, length):
        return known_text(self.prompts, row, length, self.block_size)

    def admit(self, slot, row, tokens):
        """Admit a request with so many tokens behind what is found; return how far it came, None: it has no room."""
        prompt = self.text(row, self.lengths[row])
        hits = self.model.find(prompt)
        assert self.ours.lookup(row, len(prompt) + 1) == len(hits)
        if len(hits) * self.block_size == len(prompt):
            self.model.admit_whole(slot, prompt)
            self.ours.skip(slot, row, len(prompt))
            return len(prompt)
        length = min(len(hits) * self.block_size + tokens, len(prompt))
        return self.reach(slot, row, length, hits)

    def reach(self, slot, row, length, hits=()):
        prompt = self.text(row, self.lengths[row])
        fits = self.model.reach(slot, prompt, self.text(row, length), length, hits)
        assert self.ours.allocate(slot, row, length, hits=len(hits), known_tokens=length) == fits
        return length if fits else None

    def release(self, slot):
        self.model.release(slot)
        self.ours.release(slot)

    def compare(self):
        self.kv.check()
        self.host.check()
        model, hashes = self.model, self.host.hashes()
        assert self.kv.free_queue() == model.free
        assert {slot: self.kv.block_table(slot) for slot in model.tables} == model.tables
        assert self.kv.num_cached_hashes == len(model.found)
        assert hashes.keys() == model.host.keys()
        for block, (text, _) in model.host.items():
            assert self.hash_of.setdefault(text, hashes[block]) == hashes[block]
        assert len(set(self.hash_of.values())) == len(self.hash_of)
        assert [getattr(self.host, name) for name in COUNTS] == [getattr(model, name) for name in COUNTS]


def random_prompts(rng):
    """Return prompts of which many begin alike, and some go on as the outputs of the first do."""
    first = rng.randint(1, 6)
    return [[(STREAM, first)], *([(STREAM, rng.choice([first, rng.randint(1, 12)])), (OUTPUTS, rng.randint(1, 8))]
                                 if rng.random() < 0.3 else [(STREAM, rng.randint(1, 16))] for _ in range(5)), 9]


def act(pair, running, rng):
    """Admit a request, let one go on, or let it go."""
    slot = rng.randrange(NUM_SLOTS)
    if slot not in running:
        row = rng.randrange(len(pair.prompts))
        length = pair.admit(slot, row, rng.choice([1, 3, 20]))
    elif rng.random() < 0.3:
        length = pair.release(slot)
        del running[slot]
    else:
        row, before = running[slot]
        rest = pair.lengths[row] - before
        length = pair.reach(slot, row, before + (rng.randint(1, min(rest, 6)) if rest > 0 else 1))
    if length is not None:
        running[slot] = row, length


def test_blocks_move_and_come_back_as_the_rules_say():
    totals = Counter()
    for seed in range(150):
        rng, running, now_us, waited_ns = random.Random(seed), {}, 0, 0
        pair = Pair(random_prompts(rng), rng.randint(4, 14), rng.randint(1, 3), rng.choice([2, 8, 1000]),
                    rng.choice([0.0, 0.2, 0.5, 0.8, 1.0]))
        for _ in range(120):
            now_us += rng.choice([0, 400, 5000])
            pair.begins(now_us)
            act(pair, running, rng)
            pair.compare()
            waited_ns += pair.ours.take_waiting_ns()
            totals["with gaps"] += sum(0 < pair.model.skipped[slot] < pair.lengths[row]
                                       for slot, (row, _) in running.items())
        assert waited_ns == RELOAD_NS * pair.host.reloaded
        totals += Counter({name: getattr(pair.host, name) for name in COUNTS})
    assert min(totals[name] for name in (*COUNTS, "with gaps")) > 20, totals


def test_a_block_of_one_token_moves_only_if_a_prompt_filled_it():
    # Blocks that an output fills, of one token each, are forgotten: of a, b and one output only a and b move.
    pair = Pair([SHARED[:1], 2, 3], 8, 1, 8, 0.0)
    pair.admit(1, 2, 3)
    pair.admit(0, 1, 2)
    assert pair.ours.allocate(0, 1, 3, known_tokens=3)
    pair.ours.release(0)

    assert sorted(pair.host.hashes()) == [4, 5]


def filled_and_left(threshold, capacity=9):
    """Return a pair of ten blocks of two tokens: blocks 1 and 2 were left by one while another holds 3 to 8."""
    pair = Pair([SHARED, 12, SHARED, 8, 6], 10, 2, capacity, threshold)
    pair.begins(10)
    pair.admit(0, 0, 4)
    pair.admit(1, 1, 12)
    pair.release(0)
    return pair


def test_blocks_move_while_a_larger_share_than_the_threshold_is_held():
    # 6 of 10 are held. The free list was 9 10 2 1; what moved is reused last, the last block of the text first.
    at, below = (filled_and_left(threshold) for threshold in (0.6, 0.59))

    assert (at.host.moved, at.kv.free_queue(), at.ours.lookup(2, 5)) == (0, [9, 10, 2, 1], 2)
    assert (below.host.moved, below.kv.free_queue(), below.ours.lookup(2, 5)) == (2, [9, 10, 2, 1], 0)


def test_host_memory_takes_no_more_than_fits_and_nothing_goes_for_others():
    pair = filled_and_left(0.5, capacity=1)

    assert (list(pair.host.hashes()), pair.kv.free_queue()) == ([2], [9, 10, 1, 2])


def left_twice(capacity=9):
    """Return the same after row 3 held the four free blocks, 9 10 2 1, and left them: they moved at 2000 us."""
    pair = filled_and_left(0.5, capacity)
    pair.begins(2000)
    pair.admit(2, 3, 8)
    pair.release(2)
    return pair


def test_a_block_that_replaces_another_leaves_less_room():
    # The specification says that blocks move while host memory is not full. A recorded run with room for 60 there and
    # 40 blocks of the KV cache shows what BLIS counts: after 60 moves nothing moves any more, though a block replaces
    # the one that moved under its number before, so that host memory never holds more than 40. Here 2 1 moved, then
    # 1 2 10 9: six moves, four blocks.
    pair = left_twice(capacity=6)
    row = pair.host.rows()[0]

    assert (row["stored_chunks"], row["evicted_chunks"], row["used_chunks"]) == (6, 2, 4)
    pair.admit(2, 0, 4)                     # takes 1 2, of six
    pair.release(2)
    assert (pair.host.moved, pair.ours.lookup(2, 5)) == (6, 2)


def test_what_comes_back_when_an_allocation_fails_is_found_by_whoever_comes_next():
    # Row 1 needs eleven blocks of ten. All that moved comes back, in the iteration in which it moved, by number: what
    # was in 9, the beginning of the prompt, into block 10, as the free list is 1 2 10 9.
    pair = left_twice()

    assert pair.reach(1, 1, 22) is None
    assert (pair.host.reloaded, pair.host.thrashed, pair.ours.take_waiting_ns()) == (4, 4, 4 * RELOAD_NS)
    assert pair.admit(2, 3, 8) == 8         # found whole
    assert pair.model.find(pair.text(3, 8)) == [10, 9, 2, 1]
    pair.compare()


def test_of_what_comes_back_into_one_free_block_the_last_one_stays():
    # Row 4 takes 1 2 10, and row 2 needs two blocks: four come back into block 9, one after the other. What was in 10
    # stays, whose beginning is not there. They moved 1000 us before: no thrashing.
    pair = left_twice()
    pair.begins(3000)
    pair.admit(2, 4, 6)

    assert pair.admit(3, 2, 4) is None
    assert (pair.host.reloaded, pair.host.thrashed, pair.host.hashes()) == (4, 0, {})
    assert pair.model.content[9] == pair.text(3, 4)
    assert pair.ours.lookup(3, 9) == 0
    pair.compare()


def overtaken(others):
    """Return eight blocks of two tokens, of which slot 0 holds 1, 2 and 4, where 2 cannot be found; others are held.

    Slot 1 fills block 3 with the text that slot 0 then gives to block 2, and leaves: 3 moves, and its hash with it.
    """
    pair = Pair([SHARED_2, *([*SHARED_2, (OUTPUTS, tokens)] for tokens in (2, 4, 6)), 12], 8, 2, 9, 0.3)
    pair.admit(0, 0, 2)
    pair.reach(0, 0, 3)
    pair.admit(1, 1, 2)
    pair.reach(0, 0, 4)
    pair.reach(0, 0, 6)
    pair.release(1)
    pair.admit(1, 4, others)
    assert ([*pair.host.hashes()], pair.kv.block_table(0), pair.ours.lookup(2, 7)) == ([3], [1, 2, 4], 1)
    return pair


def test_who_finds_more_after_a_block_came_back_needs_fewer():
    # 8 and 3 are free. Of four blocks one is found: three are too many. What moved comes back into 8, and 4 is found
    # behind it: 8 and one more are enough.
    pair = overtaken(6)

    assert pair.admit(2, 3, 8) == 8
    assert pair.kv.block_table(2) == [1, 8, 4, 3]
    pair.compare()


def test_who_finds_the_prompt_whole_after_a_block_came_back_holds_none_of_it():
    # 3 alone is free, two blocks are needed; what moved comes back into 3.
    pair = overtaken(8)

    assert pair.admit(2, 2, 6) == 6
    assert (pair.kv.block_table(2), pair.kv.free_queue(), pair.ours.lookup(2, 7)) == ([], [3], 3)
    pair.compare()


def test_a_prompt_that_is_being_computed_goes_on_behind_what_came_back():
    # Blocks 2 and 1 moved, with the first four tokens of the prompt; then slot 2 computes two of them again, in 6. Its
    # next four tokens need two blocks, 1 alone is free, and what was in 2 comes back into it: the two tokens behind
    # that are enough, and take block 1.
    pair = Pair([6, SHARED, [(STREAM, 8)], 2], 6, 2, 9, 0.4)
    pair.admit(1, 1, 4)
    pair.admit(0, 0, 6)
    pair.release(1)
    pair.admit(2, 2, 2)
    pair.admit(1, 3, 2)
    assert (pair.kv.block_table(2), pair.kv.free_queue()) == ([6], [1])

    assert pair.reach(2, 2, 6) == 6
    assert (pair.kv.block_table(2), list(pair.host.hashes()), pair.host.reloaded) == ([6, 1], [1], 1)
    pair.compare()


def test_a_replica_that_failed_has_lost_what_was_there():
    pair = filled_and_left(0.5)
    pair.ours.fail()
    row = pair.host.rows()[0]

    assert (row["used_chunks"], row["stored_chunks"], pair.host.hashes()) == (0, 2, {})
    pair.host.check()
