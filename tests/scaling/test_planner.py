"""What the planner wants, by its formula: worked numbers."""
from itertools import pairwise

import numpy as np
import pytest

from simulator.domain import records
from simulator.scaling.base import Observation, Variant
from simulator.scaling.planner import Planner, PlannerParameters
from simulator.scaling.profile import DecodePoint, PrefillPoint

MS, S = 10**6, 10**9
# Of prompts of 1000 and 3000 tokens; of 10 and 20 requests, each with 1000 and 3000 tokens of context.
PREFILL = (PrefillPoint(prompt_tokens=1000, ttft_ms=100.0, tokens_per_s=10_000.0),
           PrefillPoint(prompt_tokens=3000, ttft_ms=300.0, tokens_per_s=6000.0))
DECODE = tuple(DecodePoint(concurrency=c, context_tokens=k, itl_ms=i, tokens_per_s=r) for c, k, i, r in (
    (10, 1000, 10.0, 1000.0), (20, 1000, 20.0, 1600.0), (10, 3000, 20.0, 500.0), (20, 3000, 40.0, 800.0)))


def planner(**keys):
    return Planner(PlannerParameters(**{"itl_ms": 15.0, "prefill_profile": PREFILL, "decode_profile": DECODE} | keys))


def requests(count, isl=1000, osl=101, ttft_ms=100.0, itl_ms=10.0):
    found = np.zeros(count, records.REQUEST)
    found["status"], found["prompt_tokens"], found["output_tokens"] = records.COMPLETED, isl, osl
    found["first_token_ns"] = round(ttft_ms * MS)
    found["completed_ns"] = found["first_token_ns"] + round(itl_ms * (osl - 1) * MS)
    return found


def observed(finished, *, prefill=1, decode=1, accelerators=(1, 1), now_s=10):
    variants = tuple(Variant(i, role, 1.0, 1600, 0, 50, max(count - 1, 0), np.zeros(count, records.REPLICA_STATE),
                             np.zeros(count, records.REPLICA_ACCOUNT), role, gpus)
                     for i, (role, count, gpus) in enumerate(zip(("prefill", "decode"), (prefill, decode), accelerators,
                                                                 strict=True)))
    return Observation(now_s * S, variants, 0, finished)


def test_replicas_are_the_tokens_over_what_one_does():
    # 200 requests in 10 s. Prefill: 20 x 1000 / 10,000 = 2. Decode: 20 x 101 = 2020 tokens/s over the rate at 1050.5
    # tokens of context, itl 15: (10, 10.2525 ms, 987.375), (20, 20.505, 1579.8): 0.46306 of the way, 1261.70: ceil 1.6.
    policy = planner(corrects=False)

    assert policy.profile.decode_tokens_per_s(15.0, 1050.5) == pytest.approx(1261.70, abs=0.01)
    assert policy.decide(observed(requests(200))) == {0: 1, 1: 1}
    assert planner(corrects=False).decide(observed(requests(200), prefill=4, decode=4)) == {0: -2, 1: -2}


def test_profiles_are_interpolated_between_their_points():
    policy = planner()

    assert [policy.profile.ttft_ms(isl) for isl in (1, 1000, 2000, 9000)] == [100.0, 100.0, 200.0, 300.0]
    assert [policy.profile.prefill_tokens_per_s(isl) for isl in (1000, 2000, 3000)] == [10_000.0, 8000.0, 6000.0]
    assert [policy.profile.expected_itl_ms(c, 2000) for c in (5, 10, 15, 20, 30)] == [15.0, 15.0, 22.5, 30.0, 30.0]


@pytest.mark.parametrize(("itl_ms", "tokens_per_s"), [
    (9.0, 1000.0), (10.0, 1000.0), (12.5, 1150.0), (20.0, 1600.0), (99.0, 1600.0)])
def test_the_best_throughput_within_a_bound(itl_ms, tokens_per_s):
    assert planner().profile.decode_tokens_per_s(itl_ms, 1000) == tokens_per_s


def test_a_faster_first_token_than_the_profile_needs_fewer_prefill_replicas():
    # TTFT 50 of 100 ms: 0.5 x 6 = 3 replicas; twice as long as the profile has it: 6, no more.
    for ttft_ms, wanted in ((50.0, 3), (100.0, 6), (200.0, 6)):
        assert planner().decide(observed(requests(600, ttft_ms=ttft_ms))).get(0, 0) == wanted - 1


def test_slower_tokens_than_the_profile_need_more_decode_replicas():
    # 40 a second hold a decode replica 1 s (100 gaps of 10 ms): 40 at once, 20.505 ms by the profile. Corrected, the
    # bound is 15 x 20.505 / 10 = 30.8 ms: 1580 tokens/s, 4040 / 1580 = 2.6. With gaps of 41.01 ms, twice what the
    # profile says, it is 7.5: 987.375 tokens/s, 4.09.
    assert planner().decide(observed(requests(400)))[1] == 2
    assert planner().decide(observed(requests(400, itl_ms=41.01)))[1] == 4


def test_replicas_of_several_accelerators():
    # 600 in 10 s: 6 accelerators for prompts, two a replica.
    assert planner().decide(observed(requests(600), accelerators=(2, 1)))[0] == 2


def test_both_sides_are_cut_to_what_there_may_be():
    # 6 and ceil(60 x 101 / 1580) = 4 of 5 accelerators: 6 x 5 / 10 = 3, and 2 are left.
    assert planner().decide(observed(requests(600))) == {0: 5, 1: 3}
    assert planner(max_accelerators=5).decide(observed(requests(600))) == {0: 2, 1: 1}


def test_an_interval_is_as_long_as_it_was():
    policy = planner(corrects=False)
    policy.decide(observed(requests(200), now_s=10))

    assert policy.decide(observed(requests(200), now_s=15))[0] == 3      # 40 a second


def test_with_no_request_left_both_sides_come_down():
    failed = requests(5)
    failed["status"] = records.DROPPED

    assert planner().decide(observed(requests(0), prefill=3)) == {0: -2}
    assert planner().decide(observed(failed, prefill=3, decode=4)) == {0: -2, 1: -3}


def there(prefill, decode, *, now_s=20, queued=0):
    """Return what is seen of replicas with these requests in flight, as running, waiting and used blocks of 16."""
    seen = observed(requests(0), prefill=len(prefill), decode=len(decode), now_s=now_s)
    for variant, loads in zip(seen.variants, (prefill, decode), strict=True):
        for state, account, (running, waiting, blocks) in zip(variant.states, variant.accounts, loads, strict=True):
            state["running"], state["waiting"], state["used_blocks"], state["block_size"] = running, waiting, blocks, 16
            account["in_flight"] = running + waiting
    return Observation(now_s * S, seen.variants, queued, seen.finished)


def test_answers_longer_than_an_interval_do_not_hide_the_need():
    # As above, requests of 1000 and 101 tokens. 45 decode: 45 / 15 ms = 3000 tokens/s over 1261.70: 3. With them 55
    # came that wait for their prompts: 100 x 1000 in 10 s over 10,000: 1; 250 that wait: 3.
    policy = planner(corrects=False)
    policy.decide(observed(requests(200)))

    assert policy.decide(there([(0, 55, 0)], [(45, 0, 0)])) == {1: 2}
    assert policy.decide(there([(0, 250, 0)], [(45, 0, 0)], now_s=30)) == {0: 2, 1: 2}
    # Of 295 requests all are still there and none waits: none came. One replica of decode has 20 of 15.
    assert policy.decide(there([(0, 0, 0)] * 3, [(270, 0, 0), (25, 0, 0)], now_s=40))[0] == -2


def test_before_anything_completed_the_caches_say_how_long_requests_are():
    # 45 requests hold 3000 blocks: 1066.7 tokens each, 1253.6 tokens/s at that context; 3000 / 1253.6.
    assert planner(corrects=False).decide(there([(0, 0, 0)], [(45, 0, 3000)])) == {1: 2}
    assert planner(corrects=False).decide(there([(0, 9, 0)] * 2, [(0, 0, 0)] * 2)) == {}


def test_whatever_waits_at_the_gateway_calls_for_the_first_of_each():
    assert planner().decide(there([], [], queued=1)) == {0: 1, 1: 1}


@pytest.mark.parametrize(("keys", "message"), [
    ({"decode_profile": DECODE[:3]}, "decode_profile: give each concurrency at the same context_tokens, and each pair"),
    ({"decode_profile": DECODE[:1] * 2}, "decode_profile: give each concurrency at the same context_tokens"),
    ({"prefill_profile": PREFILL[:1] * 2}, "prefill_profile: give each prompt_tokens once")])
def test_profiles_that_do_not_fit(keys, message):
    with pytest.raises(ValueError, match=message):
        planner(**keys)


def test_more_load_never_takes_fewer_replicas():
    wanted = [planner(corrects=False).decide(observed(requests(count))) for count in range(50, 1500, 50)]

    assert all(one.get(pool, 0) <= two.get(pool, 0) for one, two in pairwise(wanted) for pool in (0, 1))
