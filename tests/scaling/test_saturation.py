"""llm-d's two analysers of saturation, by worked numbers."""
import numpy as np
import pytest

from scaling.test_policies import observed, variant
from simulator.domain import records
from simulator.scaling.base import Observation
from simulator.scaling.saturation_v1 import SaturationV1, SaturationV1Parameters
from simulator.scaling.saturation_v2 import SaturationV2, SaturationV2Parameters


def first(*variants, queued=0, **keys):
    return SaturationV1(SaturationV1Parameters(**keys)).decide(observed(*variants, queued=queued))


def test_a_replica_is_added_where_little_room_is_left():
    # Spare KV of 0.8: 0.1 and 0.08, mean 0.09, below 0.1. Of (0.5, 0.3): 0.4; one less would have 0.8, nothing spare.
    assert first(variant(0, (70, 72))) == {0: 1}
    assert first(variant(0, (50, 30))) == {}
    # Spare queue of 5: 3 and 2, mean 2.5, below 3.
    crowded = variant(0, (10, 10))
    crowded.states["waiting"] = 2, 3
    assert first(crowded) == {0: 1}
    assert first(crowded, queue_spare_trigger=2.0) == {}        # one less would have 5 waiting


def test_saturated_replicas_have_no_room_to_count():
    assert first(variant(0, (80, 10))) == {}            # one is saturated, the other has 0.7
    assert first(variant(0, (90, 95))) == {0: 1}        # all are


def test_a_replica_is_removed_if_the_others_keep_their_room():
    # (0.3 + 0.3) / 1 leaves 0.2. The dearest pool with several shrinks, the cheapest grows.
    assert first(variant(0, (30, 30))) == {0: -1}
    assert first(variant(0, (10, 10), cost=1.0), variant(1, (10, 10), cost=3.0)) == {1: -1}
    assert first(variant(0, (10, 10), cost=1.0), variant(1, (10,), cost=3.0)) == {0: -1}
    assert first(variant(0, (79,), cost=2.0), variant(1, (79,), cost=1.0)) == {1: 1}
    assert first(variant(0, (79,), cost=2.0), variant(1, (79,), cost=1.0, room=0)) == {0: 1}


def test_nothing_changes_while_replicas_start():
    assert first(variant(0, (79, 79), starting=1)) == {}
    assert first(variant(0, ()), queued=3) == {0: 1}


# ---- in tokens

def pool(used_tokens, waiting, index=0, **keys):
    """Return replicas with a KV cache of 100,000 tokens, and this many in use."""
    found = variant(index, [tokens // 10 for tokens in used_tokens], **keys)
    found.states["block_size"], found.states["num_blocks"], found.states["waiting"] = 10, 10_000, waiting
    found.states["max_running"], found.states["max_batched_tokens"] = 256, 8192
    return type(found)(**found.__dict__ | {"capacity_tokens": 100_000})


def done(isl=1000, osl=1000):
    rows = np.zeros(1, records.REQUEST)
    rows["status"], rows["prompt_tokens"], rows["output_tokens"] = records.COMPLETED, isl, osl
    return rows


def decided(*variants, policy=None, queued=0, now_s=30, finished=None):
    policy = policy or SaturationV2(SaturationV2Parameters())
    return policy.decide(Observation(now_s * 10**9, variants, queued, done() if finished is None else finished))


def test_demand_is_tokens_in_use_and_prompts_that_wait():
    # 50,000 + 60,000 + 3 x 1,000 = 113,000 of 160,000: 132,941 are required, 161,429 would be spare: hold.
    # 147,000 + 3,000 = 150,000: 176,471 required, 16,471 are missing. 90,000: 160,000 - 128,571, less than a replica.
    assert decided(pool((50_000, 60_000), (3, 0))) == {}
    assert decided(pool((77_000, 70_000), (3, 0))) == {0: 1}
    assert decided(pool((45_000, 45_000), 0)) == {}
    assert decided(pool((25_000, 25_000), 0)) == {0: -1}        # 160,000 - 71,429 are 88,571


def test_replicas_that_start_are_supply():
    assert decided(pool((77_000, 70_000), (3, 0), starting=1)) == {}


def test_requests_at_the_gateway_are_demand():
    # 110,000 and 20 x (1,000 + 1,000): as above, 150,000.
    assert decided(pool((50_000, 60_000), 0), queued=20) == {0: 1}


def test_a_long_queue_shows_the_capacity_of_computation():
    # 40,000 in use with 5 waiting are its capacity: 45,000 / 0.85 - 40,000 are 12,941 more. Later that is remembered.
    policy = SaturationV2(SaturationV2Parameters())
    assert decided(pool((40_000,), 5), policy=policy) == {0: 1}
    assert decided(pool((36_000,), 0), policy=policy, now_s=60) == {0: 1}       # 42,353 of 40,000
    assert decided(pool((36_000,), 0)) == {}


def test_batched_tokens_bound_the_capacity_of_short_answers():
    # I = 9,000, O = 10: min(256, 8192 x 10 / 9010) = 9.09 requests of 9,005 tokens: 81,875, above 80,000; with a batch
    # of 2,048 20,468.
    seen = pool((20_000,), 0)
    assert decided(seen, finished=done(9000, 10)) == {}
    seen.states["max_batched_tokens"] = 2048
    assert decided(seen, finished=done(9000, 10)) == {0: 1}     # 23,529


def test_the_cheapest_per_token_grows_and_the_dearest_shrinks():
    dear, cheap = pool((10_000, 10_000), 0, cost=3.0), pool((10_000,), 0, 1, cost=1.0)
    assert decided(dear, cheap) == {0: -1}          # 240,000 - 42,857 are two; one of a pool must stay
    full = pool((80_000,), 9, cost=3.0), pool((80_000,), 9, 1, cost=1.0, room=0)
    assert decided(*full) == {0: 1}                 # 209,412 - 160,000; the cheap one has no room


@pytest.mark.parametrize("queued", [0, 3])
def test_without_replicas_the_gateway_calls_for_one(queued):
    assert decided(pool((), 0), queued=queued) == ({0: 1} if queued else {})
