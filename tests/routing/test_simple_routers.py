"""Routers that go by load or by chance."""
from collections import Counter

import pytest

from routing.faces import router_of, send, tell, view_of, workload


def counts(router, number, view=None):
    """Return how often each replica is chosen, nothing being sent."""
    found = Counter()
    for _ in range(number):
        if view is not None:
            view.touch()
        found[router.choose_replica(0, 0)] += 1
    return [found[i] for i in range(router.num_replicas)]


def test_random_takes_every_open_replica_about_as_often():
    # 3000 draws over 3 of 4: 1000 each, standard deviation 26
    chosen = counts(router_of("random", view_of(4, is_routable=[1, 1, 0, 1])), 3000)

    assert chosen[2] == 0
    assert all(abs(chosen[i] - 1000) < 4 * 26 for i in (0, 1, 3))


@pytest.mark.parametrize(("metric", "fields"), [
    ("requests", {"in_flight": [4, 2, 3]}),
    ("tokens", {"in_flight_tokens": [400, 200, 300]}),
    ("waiting", {"waiting": [4, 2, 3]}),
    ("running", {"running": [4, 2, 3]}),
    ("kv", {"used_blocks": [30, 20, 10], "num_blocks": [100, 100, 10]}),        # 0.3, 0.2, 1.0
    ("effective", {"waiting": [1, 0, 0], "running": [2, 1, 1], "in_flight": [3, 2, 3]}),    # 6, 3, 4
])
def test_least_loaded_takes_the_least_of_its_metric(metric, fields):
    assert counts(router_of("least_loaded", view_of(**fields), metric=metric), 20) == [0, 20, 0]


def test_least_loaded_takes_any_of_the_tied_each_time_anew():
    # nothing is sent, so replicas 0 and 2 stay tied: 1000 each of 2000, standard deviation 22
    chosen = counts(router_of("least_loaded", view_of(in_flight=[1, 2, 1])), 2000)

    assert chosen[1] == 0
    assert abs(chosen[0] - 1000) < 4 * 22


def test_least_loaded_follows_the_draws_that_are_given():
    # equals 0 and 2 in this order, then 2 alone, which draws nothing
    view = view_of(waiting=[0, 1, 0])
    router = router_of("least_loaded", view, metric="effective", draws=[3, 6, 1])

    assert [router.choose_replica(0, 0) for _ in range(2)] == [2, 0]
    tell(view, waiting=[1, 1, 0])
    assert router.choose_replica(0, 0) == 2
    tell(view, waiting=[0, 1, 0])
    assert router.choose_replica(0, 0) == 2


@pytest.mark.parametrize(("upstream_compat", "chosen"), [
    (False, 1),         # in flight: 3, 2, 2, and the first of the equals
    (True, 2)])         # waiting: 1, 1, 0
def test_lor_takes_the_first_of_those_with_the_fewest_requests(upstream_compat, chosen):
    view = view_of(waiting=[1, 1, 0], in_flight=[3, 2, 2])

    assert counts(router_of("lor", view, upstream_compat=upstream_compat), 20)[chosen] == 20


def test_as_upstream_lor_sends_all_to_the_first_while_nobody_waits():
    view = view_of(3, waiting=0, in_flight=[9, 1, 0])

    assert counts(router_of("lor", view, upstream_compat=True), 20) == [20, 0, 0]


def test_least_loaded_fills_replicas_evenly():
    view = view_of(7)
    router = router_of("least_loaded", view)

    for _ in range(70):
        send(router, 0)

    assert view.account_array["in_flight"].tolist() == [10] * 7


def test_power_of_two_takes_the_less_loaded_of_two():
    # of 3 pairs, {0, 1} and {0, 2} give 0 and {1, 2} gives 1; the busiest is never taken
    chosen = counts(router_of("power_of_two", view_of(in_flight=[0, 1, 2])), 3000)

    assert chosen[2] == 0
    assert abs(chosen[0] - 2000) < 4 * 26


def test_power_of_two_takes_the_only_one():
    assert counts(router_of("power_of_two", view_of(3, is_routable=[0, 1, 0])), 5) == [0, 5, 0]


def test_always_busiest_takes_the_largest_effective_load_and_the_lowest_number():
    # 1 + 2 + 3 = 6, 3 + 3 + 3 = 9, 4 + 0 + 5 = 9
    router = router_of("always_busiest", view_of(waiting=[1, 3, 4], running=[2, 3, 0], in_flight=[3, 3, 5]))

    assert counts(router, 5) == [0, 5, 0]


def test_vllm_0_10_takes_the_least_of_4_waiting_plus_running_and_the_first_of_equals():
    # 4 x 1 + 8 = 12, 4 x 2 + 3 = 11, 4 x 0 + 11 = 11
    router = router_of("vllm_dp", view_of(waiting=[1, 2, 0], running=[8, 3, 11]), vllm_version="0.10")

    assert counts(router, 5) == [0, 5, 0]


def test_vllm_counts_what_it_sent_as_waiting_until_the_replica_reports():
    # running 0, 3, 9: 0 -> 0; then 4, 3, 9 -> 1; then 4, 7, 9 -> 0; 8, 7, 9 -> 1; a report makes it 0, 3, 9 again
    view = view_of(running=[0, 3, 9])
    router = router_of("vllm_dp", view, vllm_version="0.10")

    assert [send(router, row) for row in range(4)] == [0, 1, 0, 1]

    tell(view, time_ns=5)
    assert router.choose_replica(4, 10) == 0


def test_vllm_0_32_turns_its_scan_by_one_each_time():
    router = router_of("vllm_dp", view_of(running=[2, 2, 2]))

    assert [router.choose_replica(0, 0) for _ in range(5)] == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(("fields", "scores"), [
    ({"waiting": [2, 0, 1], "running": [5, 6, 7]}, [-7, -6, -8]),
    ({"running": [5, 6, 7], "in_flight": [9, 0, 8]}, [-9, -6, -8]),             # what it has in flight itself
    # 2 waiting and 90 % of KV: 7 + 2 x 6 x 0.4 = 11.8; nothing waits: no surcharge; 0.4 < 0.5: none
    ({"waiting": [2, 0, 1], "running": [5, 6, 7], "used_blocks": [90, 90, 40], "num_blocks": 100}, [-11.8, -6, -8]),
])
def test_vllm_0_32_scores_by_requests_and_kv_usage(fields, scores):
    assert router_of("vllm_dp", view_of(**fields)).scores(0, 0).tolist() == pytest.approx(scores)


@pytest.mark.parametrize(("keys", "message"), [
    ({"client_index": 2, "client_count": 2}, "must be below client_count, 2; found 2"),
    ({"client_index": 1, "client_count": 2, "vllm_version": "0.10"},
     "client_index is of \"0.32\" or \"0.33\": 0.10 begins")])
def test_a_front_end_that_vllm_dp_cannot_be_is_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        router_of("vllm_dp", view_of(), **keys)


def test_vllm_front_ends_that_share_engines_count_for_all_of_them():
    # 2 in flight here, 4 front ends: 8
    router = router_of("vllm_dp", view_of(running=[7, 9], in_flight=[2, 0], num_replicas=2), client_count=4)

    assert router.scores(0, 0).tolist() == [-8, -9]


@pytest.mark.parametrize("name", ["session", "consistent_hash"])
def test_a_session_stays_where_it_is(name):
    requests = workload([100] * 300, session=[row % 30 for row in range(300)])
    router = router_of(name, view_of(8), requests)

    places = [send(router, row) for row in range(300)]

    assert places[:30] * 10 == places
    assert len(set(places)) == 8


@pytest.mark.parametrize("name", ["session", "consistent_hash"])
def test_only_the_sessions_of_a_closed_replica_move(name):
    requests = workload([100] * 200, session=list(range(200)))
    view = view_of(8)
    router = router_of(name, view, requests)
    before = [router.choose_replica(row, 0) for row in range(200)]

    tell(view, is_routable=[1, 1, 1, 0, 1, 1, 1, 1])

    after = [router.choose_replica(row, 0) for row in range(200)]
    assert {old for old, new in zip(before, after, strict=True) if old != new} == {3}
    assert len({new for old, new in zip(before, after, strict=True) if old == 3}) > 1


def test_sessions_spread_over_replicas():
    # 4000 sessions over 8 replicas with 160 points each: shares within about 8 % of 500
    requests = workload([100] * 4000, session=list(range(4000)))
    router = router_of("session", view_of(8), requests)

    found = Counter(router.choose_replica(row, 0) for row in range(4000))

    assert all(350 < found[i] < 650 for i in range(8))


def test_a_request_without_session_goes_by_its_tenant_and_without_tenant_by_itself():
    requests = workload([100] * 40, tenant=[5] * 20 + [-1] * 20)
    router = router_of("session", view_of(8), requests)

    assert len({router.choose_replica(row, 0) for row in range(20)}) == 1
    assert len({router.choose_replica(row, 0) for row in range(20, 40)}) > 1


def test_a_request_without_session_may_go_to_the_least_loaded():
    router = router_of("session", view_of(in_flight=[3, 1, 2]), otherwise="least_loaded")

    assert [router.choose_replica(row, 0) for row in range(4)] == [1, 1, 1, 1]


def test_equal_beginnings_of_prompts_hash_alike():
    requests = workload([[("sys", 300), ("", 50)], [("sys", 300), ("", 90)], [("other", 300)]] * 10)
    router = router_of("consistent_hash", view_of(64), requests, key="prompt", prefix_tokens=256)

    places = [router.choose_replica(row, 0) for row in range(30)]

    assert len(set(places)) == 2
    assert places[0] == places[1] != places[2]


def test_a_bounded_load_passes_a_full_replica_over():
    # one tenant, 4 replicas, factor 1: with n in flight a replica may have ceil((n + 1) / 4) - 1 before it gets another
    requests = workload([100] * 40, tenant=0)
    view = view_of(4)
    router = router_of("consistent_hash", view, requests, key="tenant", max_load_factor=1.0)

    for row in range(40):
        send(router, row)

    assert view.account_array["in_flight"].tolist() == [10] * 4


@pytest.mark.parametrize(("waiting", "expected"), [
    ([10, 11, 10], {0, 2}), ([11, 11, 11], {-1}), ([0, 0, 0], {0, 1, 2})])
def test_waiting_limit_draws_among_replicas_with_few_waiting_requests(waiting, expected):
    router = router_of("waiting_limit", view_of(waiting=waiting))
    assert {router.choose_replica(0, 0) for _ in range(60)} == expected
