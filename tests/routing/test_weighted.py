"""The weighted sum of scores."""
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.faces import context_of, router_of, send, tell, view_of, workload
from simulator.routing.policies.weighted import Weighted
from simulator.routing.scoring.python import PythonScorer


def test_the_sum_weighs_each_score_by_its_share():
    # weights 3 and 1 are 0.75 and 0.25; queue-depth: 1, 0.5, 0; kv-utilization: 0, 0.5, 1
    view = view_of(waiting=[0, 1, 2], used_blocks=[100, 50, 0], num_blocks=100)
    router = router_of("weighted", view, scorers=[("queue-depth", 3.0, {}), ("kv-utilization", 1.0, {})])

    assert router.scores(0, 0).tolist() == [0.75, 0.5, 0.25]
    assert router.choose_replica(0, 0) == 0


def test_prefix_affinity_draws_equal_beginnings_together():
    requests = workload([[(name, 160), ("", 20)] for name in "abc" * 5])
    router = router_of("weighted", view_of(3), requests, scorers=[("prefix-affinity", 1.0, {})])

    places = [send(router, row) for row in range(15)]

    assert places[:3] * 5 == places


def test_exact_ties_are_drawn_with_equal_chances():
    # 3000 draws among 3: 1000 each, standard deviation 26
    router = router_of("weighted", view_of(4, waiting=[1, 0, 0, 0]), scorers=[("queue-depth", 1.0, {})])

    found = Counter(router.choose_replica(0, 0) for _ in range(3000))

    assert found[0] == 0
    assert all(abs(found[i] - 1000) < 4 * 26 for i in (1, 2, 3))


def test_ties_follow_the_draws_that_are_given():
    # equals 1, 2 and 3 in this order: the remainders by 3 of 4, 0 and 5 are 1, 0 and 2
    view = view_of(4, waiting=[1, 0, 0, 0])
    router = router_of("weighted", view, scorers=[("queue-depth", 1.0, {})], draws=[4, 0, 5])

    assert [router.choose_replica(0, 0) for _ in range(3)] == [2, 1, 3]


def test_the_random_picker_does_not_look_at_scores():
    router = router_of("weighted", view_of(4, waiting=[9, 0, 0, 0], is_routable=[1, 1, 1, 0]),
                       scorers=[("queue-depth", 1.0, {})], picker="random")

    found = Counter(router.choose_replica(0, 0) for _ in range(3000))

    assert set(found) == {0, 1, 2}
    assert abs(found[0] - 1000) < 4 * 26


def test_the_weighted_random_picker_draws_in_proportion_to_sums():
    # load-balance: 1, 1/2, 1/4, closed: 4/7, 2/7 and 1/7 of 7000; standard deviation of the first 41
    router = router_of("weighted", view_of(4, running=[0, 1, 3, 0], is_routable=[1, 1, 1, 0]),
                       scorers=[("load-balance", 1.0, {})], picker="weighted-random")

    found = Counter(router.choose_replica(0, 0) for _ in range(7000))

    assert found[3] == 0
    assert abs(found[0] - 4000) < 4 * 41
    assert abs(found[1] - 2000) < 4 * 41


def test_the_weighted_random_picker_draws_evenly_if_all_sums_are_zero():
    router = router_of("weighted", view_of(2), scorers=[("session-affinity", 1.0, {})], picker="weighted-random")

    assert {router.choose_replica(0, 0) for _ in range(50)} == {0, 1}


@pytest.mark.parametrize(("profile", "expected"), [
    # precise-prefix-cache 2: 1 1; queue-depth 1: 1 0; kv-utilization 1: 0.5 1, over 4
    ("blis", [0.875, 0.75]),
    # prefix-affinity 3: 0 0; effective load 2: 2 + 0 + 0 and 4 + 0 + 0: 1 0; kv-utilization 2: 0.5 1, over 7
    ("blis-0.7.1", [3 / 7, 2 / 7]),
    # queue-depth 2: 1 0; kv-utilization 2: 0.5 1; prefix-affinity 3: 0 0, over 7
    ("llm-d", [3 / 7, 2 / 7]),
])
def test_without_scorers_those_of_a_system_are_taken(profile, expected):
    view = view_of(2, waiting=[2, 4], used_blocks=[50, 0], num_blocks=100)

    assert router_of("weighted", view, profile=profile).scores(0, 0).tolist() == pytest.approx(expected)


class Strange(PythonScorer):
    def rate_all(self, request, now_ns):
        return [-1.0, 0.5, 7.0]


def test_scores_are_clamped():
    context = context_of(view_of(3), workload([10]), [(Strange, 2.0, None)])

    assert Weighted(Weighted.Parameters(), context).scores(0, 0).tolist() == [0, 0.5, 1]


LOADS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.booleans()), min_size=6, max_size=6)


@given(st.lists(LOADS, min_size=1, max_size=6))
def test_scores_kept_up_to_date_are_those_computed_anew(history):
    scorers = [("queue-depth", 1.0, {}), ("active-requests", 2.0, {}), ("load-balance", 0.5, {})]
    view = view_of(6)
    router = router_of("weighted", view, scorers=scorers)
    for loads in history:
        waiting, in_flight, is_routable = map(list, zip(*loads, strict=True))
        for replica in range(6):        # one by one, and only what changes
            now = (view.state_array["waiting"][replica], view.account_array["in_flight"][replica],
                   view.account_array["is_routable"][replica])
            if now != (waiting[replica], in_flight[replica], is_routable[replica]):
                view.state_array["waiting"][replica] = waiting[replica]
                view.account_array["in_flight"][replica] = in_flight[replica]
                view.account_array["is_routable"][replica] = is_routable[replica]
                view.touch(replica)
        anew = view_of(6)
        tell(anew, waiting=waiting, in_flight=in_flight, is_routable=is_routable)

        np.testing.assert_array_equal(router.scores(0, 0), router_of("weighted", anew, scorers=scorers).scores(0, 0))


def test_ties_may_go_to_the_lowest_number():
    view = view_of(4, waiting=[1, 0, 0, 0])
    router = router_of("weighted", view, scorers=[("queue-depth", 1.0, {})], ties="number")

    assert {router.choose_replica(row, 0) for row in range(10)} == {1}
    tell(view, is_routable=0)
    assert router.choose_replica(0, 0) == -1
