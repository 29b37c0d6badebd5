"""Replicas when no request comes any more: pools come down to their minimum, whatever decides."""
import pytest
import tomli_w

import simulator

STOP_S, GAP_S = 98.0, 390.0
EXPERIMENT = {
    "engine": {"max_num_seqs": 32, "max_num_batched_tokens": 2048, "max_model_len": 8192, "num_gpu_blocks": 8192},
    "latency": {"backend": "linear", "base_us": 6000.0, "per_sequence_us": 10.0, "per_prefill_token_us": 20.0,
                "per_context_token_us": 0.05},
    "workload": {"type": "synthetic", "duration_s": 400.0, "output_tokens": {"distribution": "constant", "tokens": 128},
                 "prompt_tokens": {"distribution": "uniform", "min": 64, "max": 1024}},
    "cluster": {"routing": {"policy": "least_loaded"}},
}
PLANNER = {
    "policy": "planner", "itl_ms": 9.0, "loading_delay": {"mean_s": 5.0},
    "prefill_profile": [{"prompt_tokens": tokens, "ttft_ms": ms, "tokens_per_s": 43_500.0}
                        for tokens, ms in ((256, 11.1), (1024, 26.5))],
    "decode_profile": [
        {"concurrency": c, "context_tokens": k, "itl_ms": ms, "tokens_per_s": rate} for c, k, ms, rate in (
        (8, 250, 6.18, 1294.0), (128, 250, 8.88, 14_414.0), (8, 1250, 6.58, 1216.0), (128, 1250, 15.28, 8377.0))]}
POLICIES = [
    {"policy": "utilisation", "metric": "running", "target": 0.5}, {"policy": "queue", "target_waiting": 0.2},
    {"policy": "slo_attainment", "ttft_ms": 100.0}, {"policy": "slo_attainment", "e2el_ms": 1500.0},
    {"policy": "blis"}, {"policy": "hpa", "targets": [{"metric": "running", "average_value": 16.0}]},
    {"policy": "apa", "metric": "running", "target": 16.0}, {"policy": "kpa", "target_concurrency": 24.0}]
AT_ONCE = {"scale_down_stabilization_window_s": 0.0}
PAIR = {"pools": [{"name": role, "role": role, "replicas": 1, "max_replicas": 6} for role in ("prefill", "decode")],
        "kv_transfer": {"bandwidth_gb_per_s": 40.0, "kv_bytes_per_token": 131_072.0}}


@pytest.fixture
def run(tmp_path):
    """Serve 100 requests/s until a time, nothing until 390 s, then 1/s."""
    def run(autoscaling, stop_s=STOP_S, **more):
        text = EXPERIMENT | {"autoscaling": {"interval_s": 10.0} | autoscaling} | more
        text["workload"] = text["workload"] | {"rate": {
            "kind": "piecewise", "times_s": [0.0, stop_s, GAP_S], "rates_per_s": [100.0, 0.0, 1.0]}}
        (tmp_path / "experiment.toml").write_text(tomli_w.dumps(text))
        return simulator.run(tmp_path / "experiment.toml")
    return run


def are_up(result, time_s):
    """Return the replicas that are there, or start, at a time."""
    last = {}
    for row in result.lifecycle[result.lifecycle["time_ns"] <= round(time_s * 1e9)]:
        last[int(row["replica"])] = int(row["state"])
    return sum(state != 0 for state in last.values())


@pytest.mark.parametrize("stop_s", [95.0, 97.0, 98.0, 99.5, 100.0])
def test_the_planner_comes_down_wherever_in_the_interval_traffic_stops(run, stop_s):
    result = run(PLANNER, stop_s, engine=EXPERIMENT["engine"] | {"max_num_seqs": 128}, **PAIR)

    assert are_up(result, 94) > 2
    assert [are_up(result, time_s) for time_s in (120, 300)] == [2, 2]      # one of each


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: "-".join(map(str, policy.values())))
def test_all_others_do(run, policy):
    result = run(AT_ONCE | policy, pools=[{"name": "all", "replicas": 1, "max_replicas": 6}])

    assert are_up(result, 94) > 2
    assert are_up(result, 200) == 1
    assert result.summary["requests"]["completed"] == len(result.requests)


@pytest.mark.ci
def test_answers_that_take_several_intervals_call_for_replicas(run):
    # 4000 tokens of 6 ms and more: 24 s. At 20 s nothing has completed, and 2000 requests are there.
    long = EXPERIMENT["workload"] | {"output_tokens": {"distribution": "constant", "tokens": 4000}, "duration_s": 90.0}
    engine = EXPERIMENT["engine"] | {"num_gpu_blocks": 60_000, "max_num_seqs": 512}
    result = run(PLANNER | {"itl_ms": 7.0}, engine=engine, workload=long, **PAIR)

    assert are_up(result, 20) > 2
