"""The numbers of summary.json against a run worked by hand (the table in fakes.py)."""
import json

import numpy as np
import pytest

from results.fakes import MS, NEVER, bounds_of, replicas_of, requests_of, small_run, workload_of
from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.domain.run import Run
from simulator.domain.slo_classes import SloClass
from simulator.results import metrics, rates, slo
from simulator.results.summary import json_text, summary_of


@pytest.fixture
def summary():
    return summary_of(small_run(), "small", 42, bounds_of())


def test_every_request_that_arrived_is_counted_once(summary):
    assert summary["requests"] == {
        "injected": 5, "completed": 2, "rejected": 1, "dropped": 0, "timed_out": 0, "failed": 0, "waiting": 1,
        "running": 1, "length_capped": 0}


def test_throughput_counts_completed_requests_until_the_last_completion(summary):
    # completions at 30 and 40 ms; prompts 100 + 50, outputs 4 + 1
    assert summary["duration_s"] == 0.04
    assert (summary["total_input_tokens"], summary["total_output_tokens"]) == (150, 5)
    assert summary["request_throughput"] == 2 / 0.04
    assert summary["output_throughput"] == 5 / 0.04
    assert summary["total_token_throughput"] == 155 / 0.04


def test_latencies_are_those_of_completed_requests(summary):
    # TTFT 10 - 0, 30 - 5; queue 2 - 1, 12 - 5
    assert (summary["ttft_ms"]["min"], summary["ttft_ms"]["mean"], summary["ttft_ms"]["max"]) == (10.0, 17.5, 25.0)
    assert (summary["queue_ms"]["min"], summary["queue_ms"]["max"]) == (1.0, 7.0)


def test_what_the_others_had_stands_under_its_own_name(summary):
    # request 2 got two tokens, the first after 50 - 10, and was queued for 35 - 10; 3 and 4 had nothing
    others = summary["not_completed"]
    assert (others["requests"], others["streamed"], others["in_itl"], others["output_tokens"]) == (3, 1, 1, 2)
    assert (others["ttft_ms"]["max"], others["queue_ms"]["max"]) == (40.0, 25.0)


def test_time_per_output_token_leaves_out_one_token_requests(summary):
    # request 0 alone: (40 - 10) / 3
    assert (summary["tpot_ms"]["min"], summary["tpot_ms"]["max"]) == (10.0, 10.0)


def test_end_to_end_latency_takes_completed_requests(summary):
    assert (summary["e2el_ms"]["min"], summary["e2el_ms"]["max"]) == (25.0, 40.0)


def test_gaps_between_tokens_are_pooled_with_their_weights(summary):
    # 20, 5, 5, 5
    assert summary["itl_ms"]["mean"] == pytest.approx(35 / 4)
    assert summary["itl_ms"]["p50"] == 5.0


def test_cache_use_is_averaged_over_busy_time(summary):
    # 1000 block ms over 100 blocks for 50 ms
    assert summary["kv_cache"] == {"num_blocks": 100, "peak_used_blocks": 30, "mean_usage": 0.2}
    assert summary["prefix_cache"] == {"query_tokens": 170, "hit_tokens": 34, "hit_rate": 0.2}


@pytest.mark.parametrize("other", [
    {}, {"busy_ns": 1, "used_block_ns": 1.0, "peak_used_blocks": 1}])       # idle, and nearly so
def test_no_mean_use_is_above_the_peak_where_a_replica_is_idle(other):
    busy = {"num_blocks": 100, "peak_used_blocks": 60, "busy_ns": 1000, "used_block_ns": 50_000.0}
    cache = metrics.kv_cache(replicas_of(busy, {"num_blocks": 100, **other}))

    assert cache["mean_usage"] == (50 + bool(other)) / 200      # over the time of its own iterations, over all blocks
    assert cache["mean_usage"] <= cache["peak_used_blocks"] / cache["num_blocks"]


def test_replicas_are_added_up():
    replicas = replicas_of(
        {"num_blocks": 100, "peak_used_blocks": 50, "busy_ns": 10, "used_block_ns": 500.0, "prefix_query_tokens": 30},
        {"num_blocks": 300, "peak_used_blocks": 30, "busy_ns": 30, "used_block_ns": 500.0, "prefix_hit_tokens": 15})

    # 50 blocks of the one on average, 16.7 of the other
    assert metrics.kv_cache(replicas) == {
        "num_blocks": 400, "peak_used_blocks": 80, "mean_usage": pytest.approx((50 + 500 / 30) / 400)}
    assert metrics.prefix_cache(replicas) == {"query_tokens": 30, "hit_tokens": 15, "hit_rate": 0.5}


@pytest.mark.parametrize(("bounds", "expected"), [
    ({"ttft_ms": 25.0}, [True, True]),                          # a bound that is met exactly holds
    ({"ttft_ms": 24.9}, [True, False]),
    ({"e2el_ms": 30.0}, [False, True]),
    ({"tpot_ms": 9.9}, [False, True]),                          # 0 for the request of one token
    ({"ttft_ms": 25.0, "tpot_ms": 10.0, "e2el_ms": 40.0}, [True, True]),
    ({"ttft_ms": 24.9, "e2el_ms": 30.0}, [False, False]),       # each misses one
])
def test_goodput_asks_every_bound_that_is_given(bounds, expected):
    run = small_run()
    completed = run.workload.requests[:2]

    assert slo.meets(completed, bounds_of(**bounds)).tolist() == expected
    assert metrics.summarise(run, bounds_of(**bounds))["request_goodput"] == sum(expected) / 0.04


def test_without_bounds_there_is_no_goodput(summary):
    assert summary["request_goodput"] is None


def test_classes_have_their_own_counts_and_latencies():
    run = small_run(slo_class=["fast", "slow", "fast", None, "slow", "fast"], tenant=["a"] * 6)

    parts = metrics.summarise(run, bounds_of(ttft_ms=10.0))

    fast, slow = parts["by_slo_class"]["fast"], parts["by_slo_class"]["slow"]
    assert list(parts["by_slo_class"]) == ["fast", "slow"]
    assert (fast["requests"]["injected"], fast["requests"]["running"]) == (2, 1)     # the third has not arrived
    assert fast["ttft_ms"]["max"] == 10.0
    assert fast["slo_attainment"] == 0.5
    assert fast["request_throughput"] == 1 / 0.04
    assert (slow["requests"]["rejected"], slow["slo_attainment"], slow["e2el_ms"]["max"]) == (1, 0.0, 25.0)
    assert parts["by_tenant"]["a"]["requests"] == parts["requests"]


def test_a_class_is_held_to_its_own_bounds():
    # TTFT 10 and 25 ms; both classes ask for 10, unless the class says otherwise; one request of slow was rejected
    run = small_run(slo_class=["fast", "slow", "fast", None, "slow", "fast"], tenant=["a", "a", "b", "b", "b", "b"])
    patient = SloClass(name="slow", ttft_ms=25.0)

    parts = metrics.summarise(run, bounds_of(ttft_ms=10.0, classes=(patient,)))

    assert parts["request_goodput"] == 2 / 0.04
    assert parts["by_slo_class"]["fast"]["slo_attainment"] == 1 / 2
    assert parts["by_slo_class"]["slow"]["slo_attainment"] == 1 / 2
    assert parts["by_slo_class"]["slow"]["request_goodput"] == 1 / 0.04
    assert (parts["by_tenant"]["a"]["slo_attainment"], parts["by_tenant"]["b"]["slo_attainment"]) == (1.0, 0.0)


def test_a_class_without_bounds_has_no_goodput_and_its_completed_requests_are_good():
    run = small_run(slo_class=["fast", "slow", "fast", None, "slow", "fast"])
    strict = SloClass(name="fast", e2el_ms=39.9)        # that of request 0 is 40 ms

    parts = metrics.summarise(run, bounds_of(classes=(strict,)))

    assert parts["request_goodput"] == 1 / 0.04
    assert (parts["by_slo_class"]["fast"]["request_goodput"], parts["by_slo_class"]["fast"]["slo_attainment"]) == (0, 0)
    assert parts["by_slo_class"]["slow"]["request_goodput"] is None
    assert parts["by_slo_class"]["slow"]["slo_attainment"] is None


def test_the_bounds_of_a_class_add_to_those_of_all():
    run = small_run(slo_class=["fast", "slow", "fast", None, "slow", "fast"])
    classes = (SloClass(name="fast", ttft_ms=10.0), SloClass(name="slow", tpot_ms=1.0))

    # e2el 40 and 25 ms, bound 30: request 0 keeps its TTFT but not that
    assert metrics.summarise(run, bounds_of(e2el_ms=30.0, classes=classes))["request_goodput"] == 1 / 0.04
    assert metrics.summarise(run, bounds_of(e2el_ms=40.0, classes=classes))["request_goodput"] == 2 / 0.04


def test_a_request_without_an_output_token_has_an_end_and_no_ttft():
    requests = requests_of([(0, 0, 0, 10, 10, 5, 0, records.COMPLETED)])
    run = Run(workload_of(requests), True, 10 * MS, replicas_of({}), WeightedSamples())

    found = metrics.summarise(run, bounds_of(tpot_ms=1.0))

    assert (found["ttft_ms"]["mean"], found["e2el_ms"]["mean"], found["tpot_ms"]["mean"]) == (None, 10.0, None)
    assert found["request_goodput"] == found["slo_attainment"] * 100 == 100.0       # no token, so none is late
    assert metrics.summarise(run, bounds_of(ttft_ms=1.0))["request_goodput"] == 100.0
    assert metrics.summarise(run, bounds_of(e2el_ms=1.0))["request_goodput"] == 0.0


def test_a_run_without_requests_has_null_statistics_and_no_nan():
    run = Run(workload_of(requests_of([])), False, 0, replicas_of({"num_blocks": 5}), WeightedSamples())

    text = json_text(summary_of(run, "empty", 0, bounds_of(ttft_ms=1.0)))

    found = json.loads(text)
    assert "NaN" not in text
    assert "Infinity" not in text
    assert found["ttft_ms"]["mean"] is None
    assert (found["duration_s"], found["request_throughput"], found["request_goodput"]) == (0.0, 0.0, 0.0)
    assert (found["complete"], found["kv_cache"]["mean_usage"], found["prefix_cache"]["hit_rate"]) == (False, 0.0, 0.0)


def test_an_unknown_status_is_refused():
    requests = requests_of([(0, NEVER, None, None, None, 1, 1, 9)])

    with pytest.raises(AssertionError, match="unknown request status 9"):
        metrics.count_by_status(requests, np.zeros(1, bool))


def test_sums_of_tokens_do_not_overflow():
    requests = requests_of([(0, 0, 0, 1, 2, 2**31 - 1, 2**31 - 1, records.COMPLETED)] * 4)

    found = rates.throughput(requests, 1.0, None)

    assert found["total_input_tokens"] == found["total_output_tokens"] == 4 * (2**31 - 1)


def test_summary_begins_with_its_identity_and_has_the_keys_of_the_contract(summary):
    assert list(summary) == [
        "schema", "name", "seed", "complete", "requests", "by_cause", "unserved", "duration_s", "clock_s",
        "total_input_tokens", "total_output_tokens",
        "request_throughput", "output_throughput", "total_token_throughput", "request_goodput",
        "slo_attainment", "offered_throughput", "verdict", "in_system", "served_share",
        "ttft_ms", "tpot_ms", "e2el_ms", "queue_ms", "itl_ms", "not_completed", "iterations", "preemptions",
        "kv_allocation_failures", "kv_cache", "prefix_cache", "by_slo_class", "by_tenant", "by_model", "fairness",
        "by_pool", "cost_by_node", "replicas", "latency", "diagnosis"]
    assert (summary["schema"], summary["name"], summary["seed"], summary["clock_s"]) == (1, "small", 42, 0.06)
    assert summary["replicas"][0]["busy_s"] == 0.05
    assert json_text(summary).endswith("}\n")


def test_outputs_that_max_model_len_cut_are_counted_and_named():
    # true lengths 4 (reached), 9 (cut by nothing but max_model_len), 2 (running)
    run = small_run(request_ids=["a", "b", "c", "d", "e", "f"], tenant=["x", "y", "y", "y", "y", "y"])
    run.workload.outcomes["output_tokens"] = [4, 9, 9, 1, 1, 1]
    run.workload.demands["max_tokens"] = 9

    found = metrics.summarise(run, bounds_of())

    assert (found["requests"]["completed"], found["requests"]["length_capped"]) == (2, 1)
    assert [found["by_tenant"][name]["requests"]["length_capped"] for name in "xy"] == [0, 1]
    assert found["diagnosis"][0] == (
        "1 output was cut at max_model_len, request b first: prompt and whole output are longer; they count as "
        "completed, with the tokens they got")
