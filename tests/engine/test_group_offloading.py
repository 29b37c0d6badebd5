"""KV of layers in groups, offloaded to host memory, by timelines worked out by hand: iterations of 10 ms.

Blocks hold 16 tokens; one group sees all of the text, one the last 32 tokens, of which a hit needs two blocks.
"""
import pytest

from simulator.domain.failures import Failure
from support import engine, upkeep
from support import offloading as timelines
from support.offloading import ms, own, shared
from support.random_hybrid import with_group_offload
from support.scenario import load
from support.vllm_scope import plain

GROUPS = [{"kind": "full_attention", "block_size": 16}, {"kind": "sliding_attention", "block_size": 16, "window": 32}]


def scenario(requests, offload=None, **options):
    return timelines.scenario(requests, offload, **{"num_blocks": 17, "groups": GROUPS} | options)


def copies(recording, kind):
    """Return (request, slots) of the copies of a kind, step by step."""
    return [(row, slots) for step in recording.steps for _, row, slots, _ in step["copies"][kind]]


def test_of_a_window_its_end_is_kept_and_loaded():
    # Of the four blocks of r0 all are stored for the one group, and for the other the second and third, with which a
    # hit of 48 tokens ends: one that leaves a token to compute. r1 takes all blocks; r2 loads three and two.
    recording = engine.run(scenario([(0, shared("a", 64), 1), (30, own(112), 1), (60, shared("a", 64), 1)]))

    assert copies(recording, "stores")[0] == (0, [0, 1, 2, 3, 4, 5])
    assert copies(recording, "loads") == [(2, [0, 1, 2, 4, 5])]
    assert recording.requests["cached_tokens"].tolist() == [0, 0, 48]
    assert recording.iterations["prefill_tokens"].tolist() == [64, 112, 16]
    assert ms(recording, "completed_ns")[2] == 71


def test_what_was_given_away_before_it_was_offered_is_lost():
    # The host has room for one chunk, so r0 is refused at each step. It goes on for 40 tokens, and the blocks that its
    # window leaves behind are given to r1 before the host has room.
    requests = [(0, shared("a", 64), 40), (20, own(64), 30)]
    tiers = [upkeep.run(scenario(requests, {"chunks": chunks}, num_blocks=13), replicas=1).cluster.replicas[0]
             .scheduler.tier for chunks in (4, 100)]

    assert [tier.refusals > 0 for tier in tiers] == [True, False]


@pytest.mark.parametrize("seed", range(100))
def test_ways_that_keep_less_books_decide_the_same(seed):
    """Members, and iterations at once, against one by one with a look at every block."""
    case = load(plain(with_group_offload(seed)))
    full = engine.run(case, fast_forward=False, max_iterations=20_000)
    for fast_forward in (True, False):
        found = engine.run(case, fast_forward=fast_forward, details=False)

        assert (found.requests == full.requests).all()
        assert (found.iterations == full.iterations).all()
        assert found.token_times == full.token_times


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_at_the_end_all_is_free_and_copies_are_accounted_for(seed, fails):
    case = load(plain(with_group_offload(seed)))
    stop = Failure(kind="stop", at_s=0.05, duration_s=0.01, which=0)
    found = upkeep.run(case, replicas=1, failures=[stop] if fails else [])
    scheduler = found.cluster.replicas[0].scheduler
    rows, = scheduler.tier.rows()
    scheduler.tier.check()

    assert scheduler.kv.free_blocks == scheduler.kv.num_blocks
    assert rows["started"] == rows["stores"] + rows["loads"] + rows["cancelled"] + rows["underway"]
