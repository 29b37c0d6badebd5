"""Filters: the replicas that stay, worked out by hand, and what they do to scores."""
import numpy as np
import pytest

import simulator
from routing.faces import filter_of, router_of, tell, view_of, workload
from simulator import registry
from simulator.domain.slo_classes import SloClass
from simulator.routing.base import PoolLabel

FILTERS = sorted(registry.KINDS["filter"].entries)
KEYS = {"utilization": {"max_active_requests": 6}, "label-selector": {"pools": ["default"]},
        "endpoint-attribute": {"attribute": "running", "threshold": 4.0}}
SHARED = [("doc", 160)]
EIGHT_TENTHS, TWO_TENTHS = [("doc", 128), ("", 32)], [("doc", 32), ("", 128)]


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_keeps_some_of_the_candidates_in_their_order_and_asking_changes_nothing(name):
    requests = workload([[("sys", 64), ("", 40)], 100, [("doc", 80)]] * 10, session=np.arange(30) % 5 - 1)
    view = view_of(5, waiting=[3, 0, 1, 2, 9], running=[5, 0, 5, 5, 2], in_flight=[8, 0, 6, 7, 9], num_blocks=100,
                   used_blocks=[50, 0, 90, 30, 70], in_flight_tokens=[5, 0, 9, 9, 1])
    asked, silent = (filter_of(name, view, requests, {"pools": (PoolLabel(),)}, **KEYS.get(name, {})) for _ in range(2))
    for row in range(30):
        kept = asked.kept(row, row * 10**9, [0, 2, 3, 4])
        assert kept == [each for each in (0, 2, 3, 4) if each in kept]
        assert kept == asked.kept(row, row * 10**9, [0, 2, 3, 4]) == silent.kept(row, row * 10**9, [0, 2, 3, 4])
        for each in (asked, silent):
            each.note_sent(row, row % 5, row * 10**9)


def sticky(in_flight_tokens, **keys):
    """Return the filter for a prompt of ten blocks, of which replica 0 was sent eight and replica 1 two."""
    requests = workload([EIGHT_TENTHS, TWO_TENTHS, SHARED])
    chosen = filter_of("prefix-affinity", view_of(2, in_flight_tokens=in_flight_tokens), requests, **keys)
    chosen.note_sent(0, 0, 0)
    chosen.note_sent(1, 1, 0)
    return chosen


@pytest.mark.parametrize(("tokens", "keys", "kept"), [
    (400_000, {}, [0, 1]),              # 25,113 - 1,256 = 23,857 ms > 18,000
    (250_000, {}, [0]),                 # 15,696 - 1,256 = 14,440 ms
    (400_000, {"max_ttft_penalty_ms": 0.0}, [0]),
    (250_000, {"threshold": 0.81}, [0, 1]),         # 0.8 is less: none is sticky
    (250_000, {"threshold": 0.2}, [0, 1]),          # both are
    (250_000, {"explore_share": 1.0}, [0, 1]),
    (250_000, {"block_tokens": 64}, [0]),           # two whole blocks of 64 of two are there
])
def test_prefix_affinity_keeps_sticky_replicas_unless_they_are_much_busier(tokens, keys, kept):
    # example of llm-d-router's rule: 15,928 tokens a second, 400,000 and 20,000 tokens in flight
    assert sticky([tokens, 20_000], **keys).kept(2, 0) == kept


def test_prefix_affinity_leaves_a_single_candidate_and_a_closed_replica_alone():
    chosen = sticky([0, 0])
    assert chosen.kept(2, 0, [1]) == [1]

    chosen.note_closed(0, 0)

    assert chosen.kept(2, 0) == [0, 1]


def test_explored_requests_are_a_share_of_all():
    requests = workload([EIGHT_TENTHS] + [SHARED] * 1000)
    chosen = filter_of("prefix-affinity", view_of(2), requests, explore_share=0.25)
    chosen.note_sent(0, 0, 0)

    explored = sum(chosen.kept(row, 0) == [0, 1] for row in range(1, 1001))

    assert 200 < explored < 300         # 250 expected, standard deviation 14


def test_session_affinity_holds_a_session_until_its_time_is_over():
    requests = workload([100] * 4, session=[0, 0, 1, -1])
    chosen = filter_of("session-affinity", view_of(3), requests, ttl_s=10.0)
    chosen.note_sent(0, 2, 5 * 10**9)

    assert chosen.kept(1, 15 * 10**9) == [2]
    assert chosen.kept(1, 15 * 10**9 + 1) == [0, 1, 2]
    assert chosen.kept(1, 15 * 10**9, [0, 1]) == [0, 1]         # no candidate: all others
    assert chosen.kept(2, 0) == chosen.kept(3, 0) == [0, 1, 2]


@pytest.mark.parametrize(("keys", "kept"), [
    ({"max_active_requests": 5}, [0, 2]), ({"max_running_requests": 3}, [0, 1]), ({"max_waiting_requests": 1}, [2]),
    ({"max_kv_usage": 0.5}, [0, 2]), ({"max_waiting_requests": 1, "max_running_requests": 3}, []),
    ({"max_waiting_requests": 1, "max_running_requests": 3, "fallback_on_empty": True}, [0, 1, 2])])
def test_utilization_keeps_replicas_within_all_bounds(keys, kept):
    view = view_of(3, in_flight=[5, 6, 0], running=[3, 1, 4], waiting=[2, 2, 1], num_blocks=[100, 100, 0],
                   used_blocks=[50, 51, 0])

    assert filter_of("utilization", view, **keys).kept(0, 0) == kept


def test_utilization_without_a_bound_is_refused():
    with pytest.raises(ValueError, match="give at least one of max_active_requests"):
        filter_of("utilization", view_of())


@pytest.mark.parametrize(("keys", "kept"), [
    ({}, [0]),                                          # waiting 6 > 5; KV 0.9 > 0.8
    ({"headroom": 0.2}, [0, 1]),                        # 6 = 5 x 1.2; 0.9 <= 0.96, but 9 waiting
    ({"headroom": 1.0}, [0, 1, 2]),                     # at most 1 for KV
    ({"queue_depth_threshold": 1.0}, [0, 1, 2]),        # none is left: all
    ({"staleness_s": 0.2, "headroom": 1.0}, [0, 2])])   # replica 1 reported 0.3 s ago
def test_the_utilization_detector_leaves_out_full_and_silent_replicas(keys, kept):
    view = view_of(3, waiting=[5, 6, 9], num_blocks=100, used_blocks=[80, 80, 90],
                   time_ns=[3 * 10**8, 0, 2 * 10**8])

    assert filter_of("utilization-detector", view, **keys).kept(0, 3 * 10**8) == kept


@pytest.mark.parametrize(("keys", "kept"), [
    ({"max_concurrency": 4}, [0, 2]), ({"mode": "tokens", "max_tokens": 500}, [0, 1]),
    ({"mode": "hybrid", "max_concurrency": 4, "max_tokens": 500}, [0]),
    ({"max_concurrency": 4, "headroom": 0.5}, [0, 1, 2]), ({"max_concurrency": 1}, [0, 1, 2])])
def test_the_concurrency_detector_leaves_out_replicas_above_their_capacity(keys, kept):
    view = view_of(3, in_flight=[4, 5, 2], in_flight_tokens=[400, 500, 501])

    assert filter_of("concurrency-detector", view, **keys).kept(0, 0) == kept


@pytest.mark.parametrize(("operator", "kept"), [
    ("<", [0, 3]), ("<=", [0, 1, 3]), ("==", [1, 3]), ("!=", [0, 2, 3]), (">=", [1, 2, 3]), (">", [2, 3])])
def test_endpoint_attribute_compares_and_lets_unknown_replicas_pass(operator, kept):
    view = view_of(4, running=[1, 2, 3, 0], num_blocks=[9, 9, 9, 0])        # the last never reported
    chosen = filter_of("endpoint-attribute", view, attribute="running", operator=operator, threshold=2.0)

    assert chosen.kept(0, 0) == kept


def test_label_selector_keeps_pools_by_name():
    options = {"pools": (PoolLabel("a"), PoolLabel("b"), PoolLabel("c"))}
    view = view_of(4, pool=[0, 1, 2, 1])

    assert filter_of("label-selector", view, None, options, pools=["b"]).kept(0, 0) == [1, 3]
    assert filter_of("label-selector", view, None, options, pools=["c", "a"]).kept(0, 0) == [0, 2]


def test_slo_headroom_tier_keeps_the_good_or_for_some_requests_the_others():
    # a step of 1 ms and 10 us a token, 100 tokens: 2 ms, 4 ms (200 tokens wait), and no report
    requests = workload([100] * 1001, slo_class=[0] + [1] * 1000)
    requests = requests.__class__(**{name: getattr(requests, name) for name in (
        "requests", "demands", "outcomes", "segments", "request_ids")}, labels={"slo_class": ["strict", "other"]})
    view = view_of(3, waiting_prefill_tokens=[0, 200, 0], num_blocks=[9, 9, 0])
    options = {"classes": {"strict": SloClass(name="strict", ttft_ms=1.0)}}
    prices = {"base_us": 1000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 10.0, "ttft_slo_ms": 3.0}

    def kept(row, **keys):
        return filter_of("slo-headroom-tier", view, requests, options, **prices | keys).kept(row, 0)

    assert kept(1, explore_share=0.0) == [0]
    assert kept(1, explore_share=1.0) == [1, 2]
    assert kept(1, explore_share=0.0, tpot_slo_ms=0.5) == [0, 1, 2]         # none is good
    assert kept(0, explore_share=0.0) == [0, 1, 2]                          # 1 ms, the target of its class
    assert kept(1, explore_share=0.0, ttft_slo_ms=5.0) == [0, 1]
    chosen = filter_of("slo-headroom-tier", view, requests, options, **prices, explore_share=0.1)
    assert 70 < sum(chosen.kept(row, 0) == [1, 2] for row in range(1, 1001)) < 130      # 100, deviation 9.5


def test_scores_compare_the_replicas_that_filters_keep():
    # waiting 0, 4, 8: replica 0 is full by its KV; of the others 4 is worth 1 and 8 is worth 0
    view = view_of(3, waiting=[0, 4, 8], num_blocks=100, used_blocks=[90, 0, 0])
    router = router_of("weighted", view, scorers=[("queue-depth", 1.0, {})], filters=[
        ("utilization-detector", {"queue_depth_threshold": 9.0})])

    assert router.scores(0, 0).tolist() == [-np.inf, 1, 0]
    assert router.choose_replica(0, 0) == 1
    tell(view, used_blocks=0)
    assert router.scores(0, 0).tolist() == [1, 0.5, 0]
    assert router.choose_replica(0, 0) == 0
    tell(view, used_blocks=[0, 0, 90])
    assert router.scores(0, 0).tolist() == [1, 0, -np.inf]


@pytest.mark.parametrize(("scorer", "fields", "scores"), [
    ("active-requests", {"in_flight": [9, 2, 4]}, [0.5, 0]),        # 2 of at most 4
    ("precise-prefix-cache", {}, [1, 1]),
    ("no-hit-lru", {}, [1, 0]),
    ("lora-affinity", {}, [1, 1]),
    ("latency-headroom", {"waiting_prefill_tokens": [0, 100, 200]}, [0.5, 1]),      # the fuller one of two
    ("endpoint-attribute", {"in_flight": [9, 2, 4]}, [1, 0])])
def test_each_score_that_compares_does(scorer, fields, scores):
    keys = {"attribute": "in_flight"} if scorer == "endpoint-attribute" else {}
    view = view_of(3, waiting=[9, 0, 0], num_blocks=100, **fields)
    router = router_of("weighted", view, scorers=[(scorer, 1.0, keys)], filters=[
        ("utilization", {"max_waiting_requests": 5})])

    assert router.scores(0, 0)[1:].tolist() == pytest.approx(scores)


def test_filters_act_in_their_order_and_may_leave_nothing():
    view = view_of(3, waiting=[0, 3, 9], in_flight=[9, 3, 0])
    first = ("utilization", {"max_waiting_requests": 5})

    assert router_of("weighted", view, filters=[first]).choose_replica(0, 0) in (0, 1)
    assert router_of("weighted", view, filters=[first, ("utilization", {"max_active_requests": 3})]).choose_replica(
        0, 0) == 1
    assert router_of("weighted", view, filters=[first, ("utilization", {"max_active_requests": 2})]).choose_replica(
        0, 0) == -1


@pytest.mark.parametrize("picker", ["random", "weighted-random"])
def test_a_drawn_replica_is_one_that_filters_keep(picker):
    view = view_of(4, waiting=[0, 9, 0, 9])
    router = router_of("weighted", view, picker=picker, filters=[("utilization", {"max_waiting_requests": 5})])

    assert {router.choose_replica(row % 10, 0) for row in range(40)} == {0, 2}


@pytest.mark.parametrize(("keys", "remark", "completed"), [
    # two replicas take one request each, and two requests find none idle
    ({}, "the filter utilization left no replica 2 times: a request without a replica is retried for retry_timeout_s, "
         "then rejected", 2),
    ({"fallback_on_empty": True}, "the filter utilization kept all replicas 2 times, since none met its conditions", 4),
    ({"max_active_requests": 9}, None, 4)])
def test_diagnosis_names_filters_that_left_nothing(tmp_path, keys, remark, completed):
    (tmp_path / "a.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "0,100,5\n" * 4)
    (tmp_path / "a.toml").write_text("""
topology = {replicas = 2}
engine = {num_gpu_blocks = 1000, max_model_len = 2048}
cluster = {routing = {policy = "weighted"}}
latency = {backend = "linear"}
workload = {type = "trace", path = "a.csv"}
""")

    summary = simulator.run(tmp_path / "a.toml", {"cluster.routing.filters": [
        {"name": "utilization", "max_active_requests": 0} | keys]}).summary

    assert summary["requests"]["completed"] == completed
    assert [line for line in summary["diagnosis"] if "filter" in line] == ([remark] if remark else [])
