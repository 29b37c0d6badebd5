"""Pooling: requests end with their prompts, by timelines worked out by hand."""
import pytest

import simulator
from simulator.assembly.site import sites_of
from simulator.config.load import load_experiment
from simulator.domain.rank_weights import rank_weights
from simulator.errors import InputErrors

MS = 1_000_000
# A step takes 10 ms and computes at most 100 tokens.
EXPERIMENT = """
workload = {type = "trace", path = "trace.csv"}
[engine]
task = "pooling"
num_gpu_blocks = 100
max_model_len = 250
max_num_batched_tokens = 100
max_num_seqs = 8
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
"""
MODEL = {"latency": {"backend": "roofline"}, "model.name": "qwen3-8b", "hardware.name": "h100-sxm-80gb",
         "engine.num_gpu_blocks": None,
         "engine.max_model_len": 4096, "engine.max_num_batched_tokens": 8192}


def experiment(folder, requests, columns="arrived_at,num_prefill_tokens,num_decode_tokens"):
    lines = [columns, *(",".join(map(str, request)) for request in requests)]
    (folder / "trace.csv").write_text("\n".join(lines) + "\n")
    (folder / "experiment.toml").write_text(EXPERIMENT)
    return folder / "experiment.toml"


def run(folder, requests, overrides=None, **more):
    return simulator.run(experiment(folder, requests, **more), overrides)


def completed_ms(result):
    return (result.requests["completed_ns"] / MS).tolist()


def test_a_request_is_complete_with_the_last_chunk_of_its_prompt(tmp_path):
    # steps of 100 tokens: 100 | 100 | 50 of the first and 50 of the second | 10
    result = run(tmp_path, [(0, 250, 0), (0, 60, 0)])

    assert completed_ms(result) == [30, 40]
    assert result.requests["output_tokens"].tolist() == [0, 0]
    assert result.summary["ttft_ms"]["mean"] is None and result.summary["e2el_ms"]["max"] == 40


def test_a_prompt_may_be_as_long_as_max_model_len(tmp_path):
    # without a place for a token of output; generation refuses such a prompt
    assert completed_ms(run(tmp_path, [(0, 250, 0)])) == [30]

    refused = run(tmp_path, [(0, 250, 1), (0, 10, 1)], {"engine.task": "generate"})
    assert refused.summary["requests"]["completed"] == 1


def test_output_of_the_workload_is_left_out_and_named(tmp_path):
    result = run(tmp_path, [(0, 50, 7), (0, 50, 0), (0, 50, 9)])

    assert completed_ms(result) == [10, 10, 20]
    assert ("pooling: no output is generated; the workload has 2 requests with 16 tokens of output, which are left "
            "out") in result.summary["diagnosis"]


def test_a_repeated_prompt_is_found_in_the_cache(tmp_path):
    # 96 tokens are six blocks; the second prompt computes the last four of 100 alone, beside 96 of the third
    result = run(tmp_path, [(0, 100, 0, "a:100"), (0.01, 100, 0, "a:100"), (0.01, 96, 0, "b:96")],
                 columns="arrived_at,num_prefill_tokens,num_decode_tokens,prompt")

    assert completed_ms(result) == [10, 20, 20]


def test_only_pools_for_pooling_leave_output_out(tmp_path):
    result = run(tmp_path, [(0, 50, 3, "a"), (0, 50, 3, "b")],
                 {"pools": [{"name": "embed", "serves": "a"}, {"name": "chat", "serves": "b", "engine": {
                     "task": "generate"}}]}, columns="arrived_at,num_prefill_tokens,num_decode_tokens,model")

    assert result.requests["output_tokens"].tolist() == [0, 3]
    assert completed_ms(result)[0] == 10


def test_output_head_and_sampler_have_no_price_and_no_weights(tmp_path):
    pooled = run(tmp_path, [(0, 16, 0)], MODEL)
    sampled = run(tmp_path, [(0, 16, 1)], MODEL | {"engine.task": "generate", "engine.async_scheduling": False})
    held = [rank_weights(sites_of(load_experiment(tmp_path / "experiment.toml", MODEL | {"engine.task": task}))[
        0].deployment).num_bytes for task in ("pooling", "generate")]

    # the head's 151,936 x 4,096 weights of 2 bytes at 3.35 TB/s: 0.37 ms at least
    saved_ns = sampled.requests["completed_ns"][0] - pooled.requests["completed_ns"][0]
    assert 370_000 < saved_ns < 600_000
    assert held[1] - held[0] == 2 * 151_936 * 4096


def test_pooling_is_not_scheduled_ahead_by_default(tmp_path):
    file = experiment(tmp_path, [(0, 50, 0)])

    assert load_experiment(file).engine.parameters.async_scheduling is False
    assert load_experiment(file, {"engine.task": "generate"}).engine.parameters.async_scheduling is True


@pytest.mark.parametrize(("overrides", "message"), [
    ({"engine.speculative": {"num_tokens": 3}}, "engine.task: expected"),
    ({"engine.structured_outputs": {}}, "engine.task: expected"),
    ({"pools": [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}], "kv_transfer": {
        "protocol": "nixl", "bandwidth_gb_per_s": 10.0}}, "engine.task: expected"),
])
def test_features_of_generation_are_refused(overrides, message, tmp_path):
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, [(0, 50, 0)], overrides)


def test_later_turns_need_the_output_of_earlier_ones(tmp_path):
    turns = {name: {"distribution": "constant", "tokens": 2} for name in ("rounds", "new_tokens", "output_tokens")}
    workload = {"type": "sessions", "num_sessions": 2, "arrival": {"process": "poisson", "rate_per_s": 1.0}}

    with pytest.raises(InputErrors, match=r'engine\.task: expected "generate", found "pooling"'):
        run(tmp_path, [], {"workload": workload | {"sessions": turns}})
