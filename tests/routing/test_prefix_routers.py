"""Routers that weigh cached prefixes against load, and the router that weighs tenants."""
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.faces import router_of, send, tell, view_of, workload
from simulator.core.sliding_sums import SlidingSums

SECOND = 10**9
SYSTEM = workload([[("sys", 160), ("", 40)] for _ in range(20)] + [400] * 20)       # 10 of 12 blocks shared; 25 own


def test_cache_aware_keeps_a_prefix_together_while_the_load_is_even():
    router = router_of("cache_aware", view_of(3), SYSTEM)

    places = [send(router, row) for row in range(20)]

    assert len(set(places)) == 1


@pytest.mark.parametrize(("in_flight", "is_even"), [
    ([64, 0, 0], True),         # difference 64 is not above 64
    ([65, 0, 0], False),        # it is, and 65 > 1.5 x 0
    ([200, 134, 134], True),    # 66 > 64 but 200 <= 201
])
def test_cache_aware_leaves_prefixes_when_both_thresholds_are_passed(in_flight, is_even):
    view = view_of(3)
    router = router_of("cache_aware", view, SYSTEM)
    router.note_sent(0, 0, 0)

    tell(view, in_flight=in_flight)

    assert (router.choose_replica(1, 0) == 0) == is_even


@pytest.mark.parametrize(("threshold", "otherwise", "expected"), [
    (0.80, "smallest_tree", 0),     # 10 of 12 blocks are 83 %: where they were sent
    (0.84, "smallest_tree", 2),     # 12, 25 and 0 blocks are remembered
    (0.84, "least_loaded", 1),
])
def test_cache_aware_needs_a_share_of_the_prompt(threshold, otherwise, expected):
    router = router_of("cache_aware", view_of(in_flight=[2, 1, 3]), SYSTEM, cache_threshold=threshold,
                       otherwise=otherwise)
    router.note_sent(0, 0, 0)
    router.note_sent(20, 1, 0)

    assert router.choose_replica(1, 0) == expected


@pytest.mark.parametrize(("shared_tokens", "in_flight", "expected"), [
    (400, [3, 1], 0),       # 40 % of the prompt match; 3 - 1 <= 64
    (256, [3, 1], 1),       # 26 % do, which is not above 30 %: the least loaded, though its tree is the larger one
])
def test_cache_aware_goes_by_load_below_the_threshold(shared_tokens, in_flight, expected):
    requests = workload([1600, [("sys", 1000)], [("sys", shared_tokens), ("", 1000 - shared_tokens)]])
    router = router_of("cache_aware", view_of(in_flight=in_flight, num_replicas=2), requests)
    router.note_sent(0, 1, 0)
    router.note_sent(1, 0, 0)

    assert router.choose_replica(2, 0) == expected


@pytest.mark.parametrize(("in_flight", "expected"), [
    ([5, 4, 3], 0),     # mean 4, deviation 0.82: 5 > 4.82 is too busy ...
    ([4, 4, 4], 0),     # all equal: the one that has the prefix
    ([9, 0, 5], 1),     # 9 - 0 > 8: the least loaded
])
def test_prefix_threshold_takes_no_replica_that_is_busier_than_most(in_flight, expected):
    view = view_of(in_flight=in_flight)
    router = router_of("prefix_threshold", view, SYSTEM, stddev_factor=2.0)
    router.note_sent(0, 0, 0)

    assert router.choose_replica(1, 0) == expected


def test_prefix_threshold_falls_back_to_the_least_loaded():
    # mean 4, deviation 0.82: replica 0 has 5 > 4 + 0.82
    router = router_of("prefix_threshold", view_of(in_flight=[5, 4, 3]), SYSTEM)
    router.note_sent(0, 0, 0)

    assert router.choose_replica(1, 0) == 2


def test_prefix_threshold_prefers_the_longest_match_then_the_least_load():
    requests = workload([[("sys", 160)], [("sys", 80)], [("sys", 160)], [("sys", 160)]])
    router = router_of("prefix_threshold", view_of(in_flight=[3, 3, 2]), requests, stddev_factor=9.0)
    router.note_sent(1, 2, 0)
    router.note_sent(0, 0, 0)
    assert router.choose_replica(2, 0) == 0

    router.note_sent(0, 2, 0)
    assert router.choose_replica(3, 0) == 2


def test_prefixaware_takes_the_longest_match_whatever_the_load():
    router = router_of("prefixaware", view_of(in_flight=[50, 0, 0]), SYSTEM)
    router.note_sent(0, 0, 0)

    assert router.choose_replica(1, 0) == 0


def test_prefixaware_takes_the_lowest_rate_if_the_match_is_short():
    # 160 tokens match, 161 are asked for; of late 2, 1 and 2 requests were sent
    router = router_of("prefixaware", view_of(), SYSTEM, min_match_tokens=161)
    for replica in (0, 1, 2, 0, 2):
        router.note_sent(0, replica, 0)

    assert router.choose_replica(1, SECOND) == 1


def test_prefixaware_takes_any_replica_if_none_matches_and_no_length_is_asked_for():
    router = router_of("prefixaware", view_of(), SYSTEM)
    router.note_sent(0, 0, 0)

    assert {router.choose_replica(25, 0) for _ in range(50)} == {0, 1, 2}


def test_kvaware_goes_by_session_then_by_rate_while_nothing_is_cached():
    requests = workload([5000] * 20, session=[3] * 10 + [-1] * 10)
    router = router_of("kvaware", view_of(4), requests)

    assert len({send(router, row) for row in range(10)}) == 1
    assert len({send(router, row) for row in range(10, 13)}) == 3


def test_dynamo_adds_prefill_that_is_left_and_blocks_that_are_held():
    # prompt 200 tokens = 12.5 blocks; (0 + 160 + 200) / 16 = 22.5 less 10 cached, 5 + 13 - 10 held: 20.5;
    # 200 / 16 + 20 + 13 = 45.5; (32 + 200) / 16 + 0 + 13 = 27.5
    view = view_of(waiting_prefill_tokens=[0, 0, 32], running_prefill_tokens=[160, 0, 0], used_blocks=[5, 20, 0])
    router = router_of("dynamo", view, SYSTEM, overlap="approximate", load="replicas")
    router.note_sent(0, 0, 0)

    assert router.scores(1, 0).tolist() == [-20.5, -45.5, -27.5]
    assert router.choose_replica(1, 0) == 0


def test_dynamo_weighs_its_terms():
    # 2 x max(0, 12.5 - 3 x 10) + (13 - 10) + 0.5 x 4
    router = router_of("dynamo", view_of(1, in_flight=[4]), SYSTEM, overlap="approximate", prefill_weight=2.0,
                       overlap_credit=3.0, request_weight=0.5, load="replicas")
    router.note_sent(0, 0, 0)

    assert router.scores(1, 0).tolist() == [-5.0]


def test_dynamo_with_a_temperature_draws_by_softmax():
    # costs 25.5, 30.5 and 35.5 + ...: distances 0, 1/2 and 1 of the width; T = 1: 1, e^-0.5, e^-1 over 1.9744
    router = router_of("dynamo", view_of(used_blocks=[0, 5, 10]), SYSTEM, temperature=1.0, load="replicas")

    found = Counter(router.choose_replica(1, 0) for _ in range(10_000))

    # 5065, 3072 and 1863, standard deviations at most 50
    assert [found[i] for i in range(3)] == pytest.approx([5065, 3072, 1863], abs=200)


def test_dynamo_without_a_temperature_takes_any_of_the_least():
    router = router_of("dynamo", view_of(used_blocks=[5, 0, 0]), SYSTEM, load="replicas")

    assert {router.choose_replica(1, 0) for _ in range(50)} == {1, 2}


def test_vtc_gives_a_tenant_its_place():
    # bucket: max(1000, (800 + 4000) / 2) = 2400. Tenant 0 used 4000: place 1.67; tenant 1 used 800: 0.33;
    # distances of replicas 0, 1, 2: 1.67 0.67 0.33 and 0.33 0.67 1.67
    requests = workload([4000, 800, 100, 100, 100], tenant=[0, 1, 0, 1, -1])
    router = router_of("vtc", view_of(3), requests)
    router.note_sent(0, 0, 0)
    router.note_sent(1, 0, 0)

    assert router.scores(2, 0).tolist() == pytest.approx([-5 / 3, -2 / 3, -1 / 3])
    assert router.scores(3, 0).tolist() == pytest.approx([-1 / 3, -2 / 3, -5 / 3])
    assert router.choose_replica(2, 0) == 2
    assert router.choose_replica(3, 0) == 0
    assert {router.choose_replica(4, 0) for _ in range(50)} == {0, 1, 2}


def test_vtc_counts_outputs_when_a_request_is_gone_and_forgets_with_time():
    # 1000 + 2 x 500 = 2000 of bucket max(1000, (2000 + 2000) / 2): place 1; later nothing is left: place 0
    requests = workload([1000, 100], tenant=[0, 0])
    requests.requests["output_tokens"] = 500
    router = router_of("vtc", view_of(3), requests, window_s=60.0)
    router.note_sent(0, 0, 0)
    router.note_left(0, 0, SECOND)

    assert router.scores(1, SECOND).tolist() == pytest.approx([-1, 0, -1])
    assert router.scores(1, 100 * SECOND).tolist() == pytest.approx([0, -1, -2])


def test_vtc_weighs_the_load_in():
    # tenant 0 used nothing: place 0; distances 0 and 1 plus 150 -> 1 (at most) and 10 / 100
    router = router_of("vtc", view_of(2, running=[150, 10]), workload([100], tenant=[0]))

    assert router.scores(0, 0).tolist() == pytest.approx([-1, -1.1])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 40)), max_size=40))
def test_sliding_sums_hold_the_last_window(additions):
    sums, now, entries = SlidingSums(3, 60.0), 0, []        # slices of one second
    for key, amount, step in additions:
        now += step
        sums.add_at(key, amount, now * SECOND)
        entries.append((key, amount, now))
        sums.check()

        for each in range(3):
            expected = sum(a for k, a, at in entries if k == each and now - at < 60)
            assert sums.sum_at(each, now * SECOND) == expected


@pytest.mark.parametrize("otherwise", ["smallest_tree", "least_loaded"])
@pytest.mark.parametrize("seed", range(30))
def test_cache_aware_takes_what_a_look_at_all_replicas_finds_best(seed, otherwise):
    rng, view, there, branches = Random(seed), view_of(7), [], set()
    prompts = [[(rng.choice("ABC"), rng.choice([32, 64, 320])), ("", rng.choice([1, 40, 400]))] for _ in range(300)]
    router = router_of("cache_aware", view, workload(prompts), seed=seed, otherwise=otherwise, capacity_blocks=60,
                       balance_abs_threshold=rng.choice([1, 4]), cache_threshold=rng.choice([0.0, 0.3, 0.8]))
    for row in range(300):
        if rng.random() < 0.05:
            tell(view, is_routable=[rng.random() < 0.8 for _ in range(7)])
        if len(there) > 12 or (there and rng.random() < 0.3):
            gone, replica = there.pop(rng.randrange(len(there)))
            view.account_array["in_flight"][replica] -= 1
            view.touch(replica)
            router.note_left(gone, replica, row)
        scores = router.scores(row, row)
        replica = send(router, row, row)

        assert replica == -1 if scores.max() == -np.inf else scores[replica] == scores.max()
        branches.add((scores > -np.inf).sum() == view.account_array["is_routable"].sum())
        there += [(row, replica)] * (replica >= 0)
    assert branches == {True, False}            # by load or size, and by what was matched


@pytest.mark.parametrize(("in_flight", "expected"), [
    ([3, 0, 0], 0),     # 160 of 200 tokens were sent there: 40 x 4 = 160, and 200 x 1 elsewhere
    ([4, 1, 0], 2),     # 200, 400 and 200: the one with fewer requests
    ([4, 0, 0], 1),     # 200 thrice: the first of those without requests
    ([9, 4, 4], 0),     # 400, 1000 and 1000
])
def test_lmetric_weighs_new_tokens_by_load(in_flight, expected):
    router = router_of("lmetric", view_of(in_flight=in_flight), SYSTEM)
    router.note_sent(0, 0, 0)
    assert router.choose_replica(1, 0) == expected
