"""Llumnix's dispatch of prompts and of what follows them, in experiments."""
import pytest

import simulator

TEXT = """
engine = {max_model_len = 4096, num_gpu_blocks = 200, async_scheduling = false}
workload = {type = "trace", path = "t.csv"}
latency = {backend = "linear", base_us = 5000.0, per_sequence_us = 10.0, per_prefill_token_us = 20.0}
kv_transfer = {bandwidth_gb_per_s = 40.0, kv_bytes_per_token = 131072.0}
pools = [{name = "p", role = "prefill", replicas = 2}, {name = "d", role = "decode", replicas = 2}]
cluster.routing = {policy = "llumnix"}
cluster.disaggregation = {stage_order = "prefill_first"}
"""


@pytest.fixture
def run(tmp_path):
    """Run an experiment with requests of (second, prompt tokens, output tokens); return its Result."""
    def run_it(requests, **overrides):
        lines = ["arrived_at,num_prefill_tokens,num_decode_tokens", *(",".join(map(str, each)) for each in requests)]
        (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
        (tmp_path / "a.toml").write_text(TEXT)
        return simulator.run(tmp_path / "a.toml", overrides={
            key.replace("__", "."): value for key, value in overrides.items()})

    return run_it


def places(result):
    return result.requests["prefill_replica"].tolist(), result.requests["replica"].tolist()


@pytest.mark.parametrize("poll_s", [0.0, 0.05])
def test_a_prompt_goes_where_fewest_tokens_of_prompts_wait_and_the_rest_where_kv_is_free(run, poll_s):
    # What is in flight counts at once. Prompts: 1000 on one, then 100, 200 and 300 (600 in all) on the other; 50 more
    # go there, too, and are done first. What follows them: 100 tokens on one, 200 on the other, 300 (400 in all), 50
    # (250 in all), 1000.
    result = run([(0, 1000, 9), (0, 100, 9), (0, 200, 9), (0, 300, 9), (0, 50, 9)],
                 cluster__routing__status_poll_interval_s=poll_s)

    prefill, decode = places(result)
    assert prefill == [prefill[0], *[1 - prefill[0]] * 4]
    one, other = decode[1:3]
    assert sorted([one, other]) == [2, 3]
    assert decode == [other, one, other, one, other]
    assert (result.requests["status"] == 3).all()


def test_statuses_tell_when_a_prompt_is_done(run):
    # The first prompt takes 45 ms. A request 500 ms later meets two idle prefill replicas; the first answer is still
    # under way on one decode replica, and it takes the other.
    result = run([(0, 2000, 300), (0.5, 10, 3), (1.0, 10, 3)], cluster__routing__request_local_account_staleness_s=0,
                 cluster__routing__status_poll_interval_s=0.0)

    _, decode = places(result)
    assert decode[1] == decode[2] != decode[0]


@pytest.mark.parametrize("keys", [
    {"mode": "lite"}, {"enable_cache_aware_scheduling": True, "cache_aware_min_tokens": 1},
    {"enable_predictor_enhanced_scheduling": True, "num_predictor_warmup_samples": 3, "num_profiling_steps": 9}])
def test_its_modes_serve_all(run, keys):
    result = run([(0.01 * i, 50 + 7 * i, 5) for i in range(40)], **{
        f"cluster__routing__{key}": value for key, value in keys.items()})

    prefill, decode = places(result)
    assert result.summary["requests"]["completed"] == 40
    assert set(prefill) == {0, 1} and set(decode) == {2, 3}


def test_the_same_one_by_one(run):
    trace = [(0.004 * i, 20 + 37 * i % 400, 3 + i % 50) for i in range(120)]
    fast, slow = run(trace), run(trace, engine__fast_forward=False)

    assert (fast.requests == slow.requests).all()
    assert places(fast) == places(run(trace))
