"""Llumnix's adaptive P/D in experiments: any replica computes prompts, or goes on with them."""
import json
from operator import eq

import pytest

import simulator

TEXT = """
engine = {max_model_len = 4096, num_gpu_blocks = 400, async_scheduling = false}
workload = {type = "trace", path = "t.csv"}
kv_transfer = {bandwidth_gb_per_s = 1.0, kv_bytes_per_token = 1e5, base_us = 0.0}
cluster.disaggregation = {stage_order = "prefill_first"}

[latency]
backend = "linear"
base_us = 10_000.0
per_sequence_us = 0.0
per_prefill_token_us = 100.0
per_context_token_us = 0.0

[cluster.routing]
policy = "llumnix"
scheduling_policy = "slo"
enable_adaptive_pd = true
tpot_slo_ms = 20.0          # of which 17 may be used up: one sequence is decoded in 10 ms, two in 20
status_poll_interval_s = 0.0
ttft_profiling_data_path = "ttft.json"
tpot_profiling_data_path = "tpot.json"
"""


@pytest.fixture
def run(tmp_path):
    """Run an experiment on pools of one replica each with requests of (second, prompt tokens, output tokens)."""
    tables = {"ttft": [{"tokens_num": tokens, "p50": 10 + 0.1 * tokens} for tokens in (1, 100_000)],
              "tpot": [{"batch_size": batch, "tokens_per_request": tokens, "p50": 10.0 * batch}
                       for batch in (1, 200) for tokens in (8, 4096)]}
    for name, rows in tables.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"results": rows}))
    (tmp_path / "a.toml").write_text(TEXT)

    def run_it(roles, requests, **overrides):
        lines = ["arrived_at,num_prefill_tokens,num_decode_tokens", *(",".join(map(str, each)) for each in requests)]
        (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
        pools = [{"name": f"{role}{i}", "role": role} for i, role in enumerate(roles)]
        return simulator.run(tmp_path / "a.toml", overrides={"pools": pools} | {
            key.replace("__", "."): value for key, value in overrides.items()})

    return run_it


def places(result):
    return result.requests["prefill_replica"].tolist(), result.requests["replica"].tolist()


def ms(result, name):
    return [time_ns / 1e6 for time_ns in result.requests[name].tolist()]


THREE = [(0, 168, 5), (0, 168, 5), (0.03, 168, 5)]
ROLES = [("decode", "prefill", "decode"), ("prefill", "decode", "decode"), ("decode", "prefill", "prefill")]


@pytest.mark.parametrize("roles", ROLES)
def test_a_replica_of_either_type_computes_a_prompt_or_goes_on_with_one(run, roles):
    # Of idle replicas the first is reserved for decodes and the second for prompts, whatever their pools are called.
    # Two prompts come: one is for the second replica, and since that is busy the other is for the third. Both take
    # 10 + 0.1 * 168 = 26.8 ms. Then the first goes on at the first replica: 11 blocks of 16 tokens are 17.6 MB, for
    # 17.6 ms, and its last token takes 10.1 ms. The other would be its second sequence, at 20 ms; it stays where it
    # is, finds 10 blocks, and computes 8 tokens in 10.8 ms. A third prompt, at 30 ms, is not for who decodes: until
    # 56.8 ms the second replica has it. Now two decode: to take one more is as slow at either, and the first of them
    # does. It has room at the end of an iteration, 64.5 ms, and the KV at 82.1; that from 84.5 ms on is its first.
    result = run(roles, THREE)

    assert places(result) == ([1, 2, 1], [0, 2, 0])
    assert ms(result, "first_token_ns") == [54.5, 37.6, 94.6]
    told = result.summary["kv_transfer"]
    assert (told["count"], told["bytes"], told["local"]) == (2, 2 * 17_600_000, 1)


def test_a_request_that_stays_moves_nothing(run):
    result = run(ROLES[0], THREE)

    assert result.requests["transfer_bytes"].tolist() == [17_600_000, 0, 17_600_000]


def test_without_room_for_both_it_is_as_if_replicas_did_one_leg(run):
    # The first of two is reserved for decodes, the second for prompts: no request stays.
    result = run(("prefill", "decode"), [(0.01 * i, 50 + i, 3) for i in range(20)])

    assert places(result) == ([1] * 20, [0] * 20)
    assert result.summary["kv_transfer"]["local"] == 0


@pytest.mark.parametrize("poll_s", [0.0, 0.05])
def test_what_is_reserved_for_one_leg_does_not_do_the_other(run, poll_s):
    result = run(("prefill", "prefill", "decode", "decode"), [
        (0.004 * i, 20 + 37 * i % 400, 3 + i % 50) for i in range(120)
    ], cluster__routing__status_poll_interval_s=poll_s)

    prefill, decode = places(result)
    assert result.summary["requests"]["completed"] == 120
    assert 0 not in prefill and 1 not in decode
    assert set(prefill) == {1, 2, 3} and set(decode) == {0, 2, 3}
    assert result.summary["kv_transfer"]["local"] == sum(map(eq, prefill, decode))


def test_a_prompt_that_no_replica_takes_is_turned_away(run):
    nobody = [{"infer_type": "prefill", "selector": {"metrics": ["predicted_ttft"]}, "filters": [
        {"name": "metric", "metric": "predicted_ttft", "threshold": 0.0, "skip_in_fallback": False}]}]
    result = run(ROLES[0], THREE, cluster__routing__infer_types=nobody)

    assert result.summary["requests"]["rejected"] == 3


def test_both_choices_are_written_down(run):
    result = run(ROLES[0], THREE, output__decisions=3)

    assert sorted(result.decisions["request"].tolist()) == [0, 0, 1, 1, 2, 2]
    assert result.decisions["replica"][result.decisions["request"] == 1].tolist() == [2, 2]


@pytest.mark.parametrize("keys", [{}, {"engine__async_scheduling": True}])
def test_the_same_one_by_one(run, keys):
    trace = [(0.004 * i, 20 + 37 * i % 400, 3 + i % 50) for i in range(120)]
    fast, slow = run(ROLES[2], trace, **keys), run(ROLES[2], trace, engine__fast_forward=False, **keys)

    assert fast.requests.tobytes() == slow.requests.tobytes()


@pytest.mark.parametrize(("slo_ms", "statuses"), [(6000.0, [3, 3]), (20.0, [4, 4])])
def test_a_prompt_that_no_replica_may_compute_goes_to_no_decode_replica_either(run, slo_ms, statuses):
    # Without adaptive P/D, too: a prompt of 168 tokens takes 26.8 ms, and 0.85 x 20 ms may be used up.
    result = run(("prefill", "decode"), [(0, 168, 5), (1, 168, 5)], cluster__routing__enable_adaptive_pd=False,
                 cluster__routing__ttft_slo_ms=slo_ms)

    assert result.requests["status"].tolist() == statuses
    assert (result.requests["replica"] == -1).all() == (slo_ms < 26.8)
