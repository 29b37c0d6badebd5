"""Routers of AIBrix by busy time, loads within targets and matched prompts, by examples worked out by hand."""
import numpy as np
import pytest

import simulator
from routing.faces import router_of, send, tell, view_of, workload
from simulator.errors import InputErrors
from simulator.routing.policies.slo_load import LoadRow

SECOND = 10**9


def test_busy_time_is_that_of_the_last_whole_period():
    # replica 0 is busy from 0.2 to 0.5 s and from 0.9 s on; 1 from 0.4 to 0.8 s
    requests = workload([100] * 9)
    router = router_of("least_busy_time", view_of(2), requests)
    router.note_sent(0, 0, SECOND // 5)
    router.note_sent(1, 1, 2 * SECOND // 5)
    router.note_left(0, 0, SECOND // 2)
    router.note_left(1, 1, 4 * SECOND // 5)
    router.note_sent(2, 0, 9 * SECOND // 10)

    assert router.scores(3, SECOND - 1).tolist() == [0, 0]
    assert router.scores(3, SECOND).tolist() == [-0.4, -0.4]
    assert router.scores(3, 2 * SECOND).tolist() == [-1, 0]
    assert router.scores(3, 9 * SECOND + 5).tolist() == [-1, 0]


def test_the_least_busy_gets_the_request_drawn_of_several():
    requests = workload([100] * 9)
    router = router_of("least_busy_time", view_of(3), requests, period_s=0.1)
    router.note_sent(0, 1, 0)

    assert {router.choose_replica(1, SECOND) for _ in range(40)} == {0, 2}


PROFILE = [{"prompt_tokens": 128, "output_tokens": 128, "concurrency": 10.0},
           {"prompt_tokens": 4096, "output_tokens": 128, "concurrency": 2.0}]


def profiled(name, view, requests, **keys):
    """Return a router with a profile of two sizes."""
    return router_of(name, view, requests, profile=tuple(LoadRow(**row) for row in PROFILE), **keys)


def loads(router, row=0):
    return [round(abs(score), 9) for score in router.scores(row, 0).tolist()]


def test_the_load_of_a_request_is_that_of_the_nearest_size():
    # log2 128 = 7, 4096: 12; 700: 9.45 is nearer to 7, 800: 9.64 to 12
    requests = workload([100, 700, 800, 100], expected_tokens=[100, -1, 128, 128])
    requests.demands["max_tokens"] = 130
    router = profiled("slo_least_load", view_of(3), requests)
    for row, replica in enumerate([0, 1, 2]):
        router.note_sent(row, replica, 0)

    assert loads(router) == [0.1, 0.1, 0.5]
    router.note_left(2, 2, 0)
    assert loads(router) == [0.1, 0.1, 0]


def test_least_load_takes_the_last_of_equals_and_pack_load_the_first_of_the_fullest():
    requests = workload([100] * 20)
    least, pack = (router_of(name, view_of(3), requests, usual_concurrency=4.0)
                   for name in ("slo_least_load", "slo_pack_load"))

    assert [send(least, row) for row in range(4)] == [2, 1, 0, 2]
    # four fill a replica: 4 x 0.25 = 1
    assert [send(pack, row) for row in range(13)] == [0] * 4 + [1] * 4 + [2] * 4 + [-1]


def test_a_replica_has_room_for_its_concurrency():
    router = router_of("slo_least_load", view_of(1), workload([100] * 20), usual_concurrency=6.0, cap=1.0)

    assert [send(router, row) for row in range(7)] == [0] * 6 + [-1]


def test_a_cap_leaves_replicas_out():
    # 2 x 0.25 + 0.25 > 0.7
    requests = workload([100] * 20)
    router = router_of("slo_least_load", view_of(2), requests, usual_concurrency=4.0, cap=0.7)

    assert [send(router, row) for row in range(5)] == [1, 0, 1, 0, -1]
    assert np.isneginf(router.scores(5, 0)).all()


@pytest.mark.parametrize("name", ["slo_least_load", "slo_pack_load"])
def test_a_cap_below_the_load_of_every_request_is_refused(name):
    with pytest.raises(ValueError, match=r"cap: 0\.2 is below 1 / 4, the least load of a request"):
        router_of(name, view_of(2), workload([100]), usual_concurrency=4.0, cap=0.2)


def test_preble_takes_the_longest_match_above_half_of_the_prompt_with_fewer_requests():
    # blocks of 16: 160 of 200 tokens were sent to 0 and 2
    requests = workload([[("a", 160), ("", 40)]] * 6 + [[("b", 96), ("", 104)]] * 2)
    router = router_of("prefix_preble", view_of(3), requests)
    router.note_sent(0, 0, 0)
    router.note_sent(1, 2, 0)
    assert {router.choose_replica(2, 0) for _ in range(40)} == {0, 2}

    router.note_sent(2, 0, 0)
    assert router.choose_replica(3, 0) == 2
    # 96 of 200 is less than half: 1 has no cost yet
    router.note_sent(6, 0, 0)
    assert router.choose_replica(7, 0) == 1


def test_preble_costs_new_tokens_in_its_window():
    # 200 new: 1 x (0.01 + 200 x 1e-3) + 10 x 0.01 = 0.31; then 40 new: 0.2 x (0.01 + 40 x 1e-3) + 0.1 = 0.11
    requests = workload([[("a", 160), ("", 40)]] * 4 + [[("b", 160)]])
    router = router_of("prefix_preble", view_of(2), requests, base_us=1e4, per_prefill_token_us=1e3,
                       per_output_token_us=1e4, output_tokens=10, window_s=60.0)
    router.note_sent(0, 0, 0)
    router.note_sent(1, 0, 30 * SECOND)

    assert router.scores(4, 30 * SECOND).tolist() == pytest.approx([-0.42, 0])
    assert router.scores(4, 61 * SECOND).tolist() == pytest.approx([-0.11, 0])
    assert router.choose_replica(4, 30 * SECOND) == 1


@pytest.mark.parametrize("name", ["manual", "prefix_hash", "bucket", "least_busy_time", "slo_least_load",
                                  "slo_pack_load", "prefix_preble"])
def test_requests_that_leave_a_closed_replica_do_no_harm(name):
    requests = workload([100] * 30, session=[row % 4 for row in range(30)])
    view = view_of(3)
    router = router_of(name, view, requests)
    places = [send(router, row, row * SECOND) for row in range(9)]
    tell(view, is_routable=[0, 1, 1])
    for row, replica in enumerate(places):
        router.note_left(row, replica, (9 + row) * SECOND)

    assert {send(router, row, 20 * SECOND) for row in range(9, 30)} <= {1, 2}


def test_predicted_lengths_are_for_routers_with_a_profile(tmp_path):
    (tmp_path / "a.toml").write_text("""
topology = {replicas = 2}
engine = {num_gpu_blocks = 1000, max_model_len = 2048}
cluster = {routing = {policy = "slo_pack_load"}}
latency = {backend = "linear"}
workload = {type = "synthetic", num_requests = 3, output_knowledge = {predictor = "exact"}, arrival = {
    process = "constant", rate_per_s = 1.0}, prompt_tokens = {distribution = "constant", value = 100}, output_tokens = {
    distribution = "constant", value = 5}}
""")

    done = simulator.run(tmp_path / "a.toml", {"cluster.routing.profile": PROFILE}).summary
    assert done["requests"]["completed"] == 3
    with pytest.raises(InputErrors, match="slo_least_load and slo_pack_load with a profile"):
        simulator.run(tmp_path / "a.toml")
