"""Llumnix's scheduler over a view: statuses with their delays, the account of what is in flight, and compositions."""
import json

import msgspec
import numpy as np
import pytest

import simulator
from routing.faces import context_of, send, tell, view_of, workload
from simulator.config.load import load_experiment, plain
from simulator.errors import InputErrors
from simulator.routing.llumnix.router import Llumnix, LlumnixParameters

MS, S = 10**6, 10**9
REQUESTS = workload([600] * 40)
LIVE = {"status_push_interval_s": 0.0, "status_poll_interval_s": 0.0, "status_steps": 0}


def llumnix(view, requests=REQUESTS, **keys):
    return Llumnix(msgspec.convert(keys, LlumnixParameters), context_of(view, requests))


def full_view(num_replicas=3, **fields):
    """Return a view of busy replicas with 100 blocks of 16 tokens."""
    return view_of(num_replicas, **{"num_blocks": 100, "block_size": 16, "running": 1, "iterations": 1,
                                    "max_batched_tokens": 8192, "time_ns": 0} | fields)


def test_fewest_tokens_to_prefill_win():
    router = llumnix(full_view(waiting_prefill_tokens=[500, 100, 300]))

    assert router.choose_replica(0, 0) == 1


def test_what_is_in_flight_spreads_requests_between_statuses():
    # 0, 10, 20 tokens wait; each request adds 600: 0, 1, 2, and again 0 (600), 1 (610), 2 (620)
    router = llumnix(full_view(waiting_prefill_tokens=[0, 10, 20]))

    assert [send(router, row, row) for row in range(6)] == [0, 1, 2, 0, 1, 2]


def test_without_the_account_all_go_to_the_same():
    router = llumnix(full_view(waiting_prefill_tokens=[0, 10, 20]), enable_instance_status_local_account=False)

    assert [send(router, row, row) for row in range(3)] == [0, 0, 0]


def test_a_request_that_left_counts_no_more():
    router = llumnix(full_view(waiting_prefill_tokens=[0, 10, 20]))
    send(router, 0, 0)
    assert router.candidates.array["in_flight_prefill_tokens"].tolist() == [600, 0, 0]

    router.note_left(0, 0, 5)

    assert router.candidates.array["in_flight_prefill_tokens"].tolist() == [0, 0, 0]
    assert router.candidates.array["in_flight"].tolist() == [0, 0, 0]


def test_a_status_that_shows_a_request_takes_it_out_of_the_account():
    requests = workload([600] * 4)
    view = full_view(2)
    router = llumnix(view, requests, **LIVE)
    send(router, 0, 10)
    requests.requests["enqueued_ns"][0] = 10
    requests.requests["scheduled_ns"][0] = -1
    tell(view, time_ns=20, waiting=[1, 0], waiting_prefill_tokens=[600, 0])

    assert send(router, 1, 20) == 1
    assert router.candidates.array["in_flight"].tolist() == [0, 1]


def test_a_request_that_no_status_shows_is_given_up_after_ten_seconds():
    view = full_view(2)
    REQUESTS.requests["enqueued_ns"] = -1
    router = llumnix(view, **LIVE)
    send(router, 0, 0)
    tell(view, time_ns=10 * S - 1)
    router.choose_replica(1, 10 * S - 1)
    assert router.candidates.array["in_flight"].tolist() == [1, 0]

    tell(view, time_ns=10 * S)
    router.choose_replica(1, 10 * S)

    assert router.candidates.array["in_flight"].tolist() == [0, 0]


def test_a_status_is_pushed_and_polled_before_it_counts():
    # push every 40 ms, poll every 50: what is true from 41 ms on is pushed at 80, polled at 100
    view = full_view(2, waiting_prefill_tokens=[0, 100])
    router = llumnix(view, enable_instance_status_local_account=False)
    choices = {}
    for time_ms in range(0, 140, 10):
        now_ns = time_ms * MS
        if time_ms > 40:
            tell(view, waiting_prefill_tokens=[300, 100], iterations=2)
        tell(view, time_ns=now_ns)
        choices[time_ms] = router.choose_replica(0, now_ns)

    assert [time_ms for time_ms, choice in choices.items() if choice == 0] == [*range(0, 100, 10)]


def test_nothing_changes_within_an_iteration():
    view = full_view(2, waiting_prefill_tokens=[0, 100])
    live = LIVE | {"status_steps": 1, "enable_instance_status_local_account": False}
    router = llumnix(view, **live)
    assert router.choose_replica(0, 0) == 0

    tell(view, waiting_prefill_tokens=[300, 100], time_ns=S)
    assert router.choose_replica(0, S) == 0

    tell(view, iterations=2)
    assert router.choose_replica(0, S) == 1


def test_thresholds_hold_until_all_are_above_them():
    # 8192 tokens and more are only for a fallback: 0 has the better metric in neither case
    view = full_view(2, waiting_prefill_tokens=[8192, 8191])
    assert llumnix(view).choose_replica(0, 0) == 1

    tell(view, waiting_prefill_tokens=[9000, 9001])
    assert llumnix(view).choose_replica(0, 0) == 0


def test_stale_replicas_are_left_alone_but_idle_ones_are_not_stale():
    # 61 s old statuses: the busy replica 0 may have died, the idle 1 has nothing to tell
    view = full_view(2, running=[1, 0], used_blocks=[0, 50], waiting_prefill_tokens=[0, 100])

    assert llumnix(view).choose_replica(0, 61 * S) == 1
    assert llumnix(view).choose_replica(0, 60 * S) == 0


@pytest.mark.parametrize(("domain", "chosen"), [("instance", 1), ("node", 2), ("instance-unit", 1), ("node-unit", 2)])
def test_a_failure_takes_its_domain_along(domain, chosen):
    view = full_view(3, is_routable=[0, 1, 1], node=[0, 0, 1], waiting_prefill_tokens=[0, 1, 2])

    assert llumnix(view, failover_domain=domain).choose_replica(0, 0) == chosen


def test_units_fail_together_where_replicas_work_in_step():
    view = full_view(3, is_routable=[0, 1, 1], unit=[5, 5, 6], waiting_prefill_tokens=[0, 1, 2])

    assert llumnix(view, data_parallel_size=2).choose_replica(0, 0) == 2


def test_nobody_is_chosen_when_all_are_closed():
    assert llumnix(full_view(3, is_routable=0)).choose_replica(0, 0) == -1


def test_a_draw_among_the_best_leaves_out_the_worst():
    view = full_view(4, waiting_prefill_tokens=[30, 10, 20, 40])
    router = llumnix(view, dispatch_top_k=3, enable_instance_status_local_account=False)

    assert {router.choose_replica(0, now_ns) for now_ns in range(60)} == {0, 1, 2}


def test_equals_are_drawn_from():
    view = full_view(4, waiting_prefill_tokens=[10, 20, 10, 10])
    router = llumnix(view, enable_instance_status_local_account=False)

    assert {router.choose_replica(0, now_ns) for now_ns in range(60)} == {0, 2, 3}


def test_a_free_composition_replaces_that_of_its_infer_type():
    view = full_view(3, waiting=[3, 1, 1], used_blocks=[10, 90, 30])
    mine = {"infer_type": "neutral", "filters": [{"name": "schedulability"}],
            "selector": {"metrics": ["num_waiting_requests", "freeness"]}}
    router = llumnix(view, infer_types=[mine])

    assert router.choose_replica(0, 0) == 2     # both have one waiting; 70 of 100 blocks are free against 10


def test_an_inverted_filter_keeps_what_it_would_reject():
    view = full_view(3, waiting_prefill_tokens=[100, 200, 300])
    mine = {"infer_type": "neutral", "selector": {"metrics": ["all_prefills_tokens_num"]},
            "filters": [{"name": "metric", "metric": "all_prefills_tokens_num", "threshold": 150, "invert": True}]}

    assert llumnix(view, infer_types=[mine]).choose_replica(0, 0) == 1


def test_prefill_and_decode_replicas_have_their_own_rules():
    view = full_view(4, infer_type=[1, 1, 2, 2], waiting_prefill_tokens=[50, 40, 0, 0], used_blocks=[0, 0, 80, 60])
    router = llumnix(view)

    assert send(router, 0, 0) == 1
    assert router.choose_decode_replica(0, 0) == 3


def test_lite_mode_counts_what_it_sends_and_forgets_what_left():
    view = view_of(2)
    router = llumnix(view, mode="lite", dispatch_neutral_load_metric="num_requests")
    first, second = send(router, 0, 0), send(router, 1, 0)
    assert {first, second} == {0, 1}

    router.note_left(0, first, 9)

    assert router.choose_replica(2, 10) == first
    assert router.candidates.array["lite_tokens"][[first, second]].tolist() == [0, 600]


def test_lite_mode_learns_the_length_of_texts_from_reports():
    view = view_of(2)
    router = llumnix(view, mode="lite", requests_report_duration_s=1.0)
    router.note_sent(0, 0, 0)
    router.note_sent(1, 1, 0)
    tell(view, running_tokens=[700, 650])
    router.choose_replica(2, 999 * MS)
    assert router.candidates.array["lite_tokens"].tolist() == [600, 600]

    assert router.choose_replica(2, S) == 1
    assert router.candidates.array["lite_tokens"].tolist() == [700, 650]


def test_upstream_never_releases_in_lite_mode_without_reports():
    router = llumnix(view_of(1), mode="lite", upstream_compat=True)
    send(router, 0, 0)
    router.note_left(0, 0, 1)
    router.choose_replica(1, 2)

    assert router.candidates.array["lite_requests"].tolist() == [1]


def test_scores_are_the_first_metric_and_reject_what_filters_reject():
    view = full_view(3, waiting_prefill_tokens=[9000, 10, 20])

    assert llumnix(view).scores(0, 0).tolist() == [-np.inf, -10, -20]


def test_hits_shorten_a_prompt_in_whole_chunks(filled_view):
    # 40 and 80 cached blocks of 16 are 640 and 1280 tokens: 2 and 5 chunks of 256
    view = filled_view(3, {(0, 0): 40, (1, 0): 80})
    tell(view, num_blocks=1000, block_size=16, iterations=1, running=1)
    router = llumnix(view, workload([2048]), enable_cache_aware_scheduling=True)

    assert router.choose_replica(0, 0) == 1
    assert router.candidates.array["hit_tokens"].tolist() == [512, 1280, 0]
    assert router.candidates.array["miss_tokens"].tolist() == [1536, 768, 2048]


@pytest.fixture
def tables(tmp_path):
    """Return the keys of tables: a prefill takes 0.1 ms a token, a decode iteration 10 ms and 1 ms a sequence."""
    ttft, tpot = tmp_path / "ttft.json", tmp_path / "tpot.json"
    ttft.write_text(json.dumps({"results": [{"tokens_num": n, "p50": 0.1 * n} for n in (0, 8192)]}))
    tpot.write_text(json.dumps({"results": [
        {"batch_size": n, "tokens_per_request": tokens, "p50": 10 + n} for n in (1, 64) for tokens in (8, 100000)]}))
    return {"ttft_profiling_data_path": str(ttft), "tpot_profiling_data_path": str(tpot)}


def test_slo_refuses_what_would_be_too_late(tables):
    # 600 tokens of prompt and 400 that wait take 100 ms, and 11 for the sequence that decodes along;
    # 0.85 x 130 ms are 110.5, 0.85 x 131 ms are 111.35
    view = full_view(1, infer_type=1, running=0, waiting=1, waiting_tokens=400, waiting_prefill_tokens=400)

    assert llumnix(view, scheduling_policy="slo", ttft_slo_ms=130.0, **tables).choose_replica(0, 0) == -1
    assert llumnix(view, scheduling_policy="slo", ttft_slo_ms=131.0, **tables).choose_replica(0, 0) == 0


def test_slo_has_no_rule_for_whole_requests(tables):
    with pytest.raises(InputErrors, match="infer_types"):
        llumnix(full_view(1), scheduling_policy="slo", **tables).choose_replica(0, 0)


@pytest.mark.parametrize(("keys", "message"), [
    ({"scheduling_policy": "slo"}, "ttft_profiling_data_path: missing"),
    ({"infer_types": [{"infer_type": "neutral"}]}, "selector.metrics"),
    ({"infer_types": [{"infer_type": "neutral", "selector": {"metrics": ["num_tokens"]}}]}, "not known in mode"),
    ({"infer_types": [{"infer_type": "neutral", "selector": {"metrics": ["freeness"]}}] * 2}, "given twice"),
    ({"infer_types": [{"infer_type": "neutral", "selector": {"metrics": ["freeness"]},
                       "filters": [{"name": "metric"}]}]}, "needs metric and threshold"),
])
def test_what_cannot_work_is_refused(keys, message):
    with pytest.raises(InputErrors, match=message):
        llumnix(full_view(1), **keys)


@pytest.mark.parametrize(("text", "message"), [
    ("{", "expected a JSON object"), ('{"results": []}', "at least one row"),
    ('{"results": [{"tokens_num": "x", "p50": 1}]}', r"results\[0\].tokens_num"),
])
def test_a_table_that_is_none_is_refused(tables, tmp_path, text, message):
    (tmp_path / "ttft.json").write_text(text)

    with pytest.raises(InputErrors, match=message):
        llumnix(full_view(1, infer_type=1), scheduling_policy="slo", **tables)


def test_keys_are_checked():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"dispatch_top_k": 0}, LlumnixParameters)


def test_a_reservation_moves_on_when_its_replica_is_gone(tables):
    view = full_view(3, infer_type=[1, 2, 2], running=[0, 0, 4], waiting=0, running_tokens=[0, 0, 400])
    router = llumnix(view, scheduling_policy="slo", enable_adaptive_pd=True, **tables)
    router.choose_replica(0, 0)
    assert router.candidates.array["reserved"].tolist() == [2, 1, 0]    # first without prefills; first without decodes

    tell(view, is_routable=[0, 1, 1])
    router.choose_replica(0, 0)

    assert router.candidates.array["reserved"].tolist() == [0, 1, 2]


EXPERIMENT = """
[topology]
replicas = 4
[engine]
num_gpu_blocks = 500
max_model_len = 4096
[latency]
backend = "linear"
[cluster.routing]
policy = "llumnix"
[workload]
type = "synthetic"
num_requests = 300
[workload.arrival]
process = "poisson"
rate_per_s = 60.0
[workload.prompt_tokens]
distribution = "uniform"
min = 50
max = 1500
[workload.output_tokens]
distribution = "uniform"
min = 1
max = 200
"""


@pytest.mark.parametrize("keys", [
    {}, {"mode": "lite", "requests_report_duration_s": 0.5}, {"status_poll_interval_s": 0.0, "status_steps": 0},
    {"enable_cache_aware_scheduling": True, "cache_aware_min_tokens": 0},
    {"dispatch_neutral_load_metric": "kv_cache_usage_ratio_projected", "dispatch_neutral_load_threshold": 0.9}])
def test_a_whole_run_is_the_same_without_fast_forward(tmp_path, keys):
    path = tmp_path / "llumnix.toml"
    path.write_text(EXPERIMENT)
    overrides = {f"cluster.routing.{key}": value for key, value in keys.items()}

    fast = simulator.run(path, overrides=overrides)
    slow = simulator.run(path, overrides=overrides | {"engine.fast_forward": False})

    assert fast.summary["requests"]["completed"] == 300
    assert len(np.unique(fast.requests["replica"])) == 4
    assert np.array_equal(fast.requests, slow.requests)


@pytest.mark.parametrize(("keys", "message"), [
    ({"mode": "lite", "dispatch_neutral_load_metric": "decode_batch_size"},
     'dispatch_neutral_load_metric: expected one of "num_requests", "num_tokens" in mode = "lite", found "decode_b'),
    ({"mode": "lite", "dispatch_decode_load_metric": "freeness"}, "dispatch_decode_load_metric: "),
    ({"dispatch_prefill_load_metric": "num_tokens"}, "dispatch_prefill_load_metric: "),
    ({"dispatch_neutral_load_metric": "predicted_ttft"}, "dispatch_neutral_load_metric: "),
    ({"mode": "lite", "scheduling_policy": "slo"}, 'scheduling_policy: "slo" needs mode = "full"'),
    *(({"mode": "lite", key: True}, f'{key}: expected false in mode = "lite"') for key in (
        "enable_cache_aware_scheduling", "enable_predictor_enhanced_scheduling", "enable_adaptive_pd",
        "enable_instance_status_local_account"))])
def test_what_a_mode_does_not_offer_is_refused(tmp_path, keys, message):
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    with pytest.raises(InputErrors) as caught:
        load_experiment(tmp_path / "e.toml", {f"cluster.routing.{key}": value for key, value in keys.items()})

    assert f"cluster.routing: {message}" in str(caught.value)


@pytest.mark.parametrize(("keys", "acts"), [
    ({}, ["all_prefills_tokens_num", "all_prefills_tokens_num", "kv_cache_usage_ratio_projected", True]),
    ({"mode": "lite"}, ["num_tokens"] * 3 + [False]),
    ({"mode": "lite", "dispatch_decode_load_metric": "num_requests"},
     ["num_tokens", "num_tokens", "num_requests", False]),
    ({"mode": "lite", "dispatch_neutral_load_metric": "freeness", "upstream_compat": True},
     ["num_tokens"] * 3 + [False]),
    ({"dispatch_neutral_load_metric": "num_tokens", "upstream_compat": True},
     ["kv_cache_usage_ratio_projected", "all_prefills_tokens_num", "kv_cache_usage_ratio_projected", True])])
def test_the_resolved_experiment_says_what_acts(tmp_path, keys, acts):
    parameters = msgspec.convert(keys, LlumnixParameters)
    found = plain(parameters)

    assert [found[f"dispatch_{kind}_load_metric"] for kind in ("neutral", "prefill", "decode")] + [
        found["enable_instance_status_local_account"]] == acts
