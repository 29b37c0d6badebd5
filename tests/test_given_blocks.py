"""A given number of KV blocks is checked as the engine checks it when it starts."""
from pathlib import Path

import pytest

import simulator
from simulator.assembly.site import sites_of
from simulator.config.load import load_experiment
from simulator.errors import InputErrors

CONFIGS = Path(__file__).parents[1] / "configs"
EXPERIMENT = """
model = {{name = "{model}"}}
hardware = {{name = "h100-sxm-80gb"}}
engine = {{{engine}}}
workload = {{type = "trace", path = "t.csv"}}
"""


@pytest.fixture
def load(tmp_path):
    """Return a function that reads an experiment with these keys of [engine]."""
    def load(engine, model="llama-3.1-8b", overrides=()):
        file = tmp_path / "a.toml"
        file.write_text(EXPERIMENT.format(model=model, engine=engine))
        return load_experiment(file, dict(overrides))
    return load


def checked(experiment):
    """Return the only site of an experiment; InputErrors: its facts do not agree."""
    return sites_of(experiment)[0].check()


@pytest.mark.parametrize(("version", "engine"), [("0.32", "vLLM 0.32.0"), ("0.33", "vLLM 0.33.0")])
def test_vllm_does_not_start_if_its_blocks_hold_no_longest_request(load, version, engine):
    # 1,000 tokens take 63 blocks of 16, and the null block is the 64th; 63 blocks hold 62 x 16 = 992 tokens
    keys = f'vllm_version = "{version}", max_model_len = 1000, num_gpu_blocks = %d'
    assert checked(load(keys % 64)).num_gpu_blocks == 64
    with pytest.raises(InputErrors, match=(
            "engine.num_gpu_blocks: expected at least 64, found 63: one request of max_model_len = 1000 tokens needs "
            f"so many, the null block included; use num_gpu_blocks >= 64 or max_model_len <= 992; {engine} refuses")):
        checked(load(keys % 63))


def test_vllm_0_10_checks_the_memory_and_no_given_number(load):
    assert checked(load('vllm_version = "0.10", max_model_len = 1000, num_gpu_blocks = 8')).num_gpu_blocks == 8


def test_tensorrt_llm_would_lower_the_longest_text(load):
    with pytest.raises(InputErrors, match=r"max_model_len <= 224; TensorRT-LLM lowers max_seq_len"):
        checked(load('scheduler = "tensorrt_llm", max_model_len = 1000, num_gpu_blocks = 7'))     # of 32 tokens


@pytest.mark.parametrize("given", ["", ", num_gpu_blocks = 19265"])
def test_the_pool_of_sglang_bounds_requests_and_refuses_none_at_start(load, tmp_path, given):
    # 70.57 GB less 65.52 GB of weights, 262,144 bytes a token; the context of Qwen3-32B is 40,960
    (tmp_path / "t.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,30000,10\n0,100,5\n")
    experiment = load(f'scheduler = "sglang"{given}', "qwen3-32b")
    assert checked(experiment).num_gpu_blocks == 19_265

    summary = simulator.run(experiment).summary
    assert (summary["requests"]["completed"], summary["requests"]["rejected"]) == (1, 1)
    assert summary["diagnosis"][0].startswith("of 2 requests some were not served: 1 rejected, of up to 30,000 prompt")
    assert "the 19,258 tokens that max_model_len and the KV pool leave a prompt" in summary["diagnosis"][0]


def test_packed_groups_count_the_tokens_in_flight(load):
    # DeepSeek-V4's windows of 128 tokens keep the tokens of two batches in flight while these execute
    config, needed = CONFIGS / "deepseek_v4.toml", {}
    for is_async in (True, False):
        site = checked(load_experiment(config, {"engine.async_scheduling": is_async}))
        batch = site.pool.engine.parameters.max_num_batched_tokens
        assert site.layer_groups.blocks_of_request(site.max_model_len, (1 + is_async) * batch) + 1 == (
            site.memory.request_blocks + 1)
        needed[is_async] = site.memory.request_blocks + 1
    assert needed[True] > needed[False]
    with pytest.raises(InputErrors, match=f"expected at least {needed[True]}, found {needed[True] - 1}"):
        checked(load_experiment(config, {"engine.num_gpu_blocks": needed[True] - 1}))
    assert checked(load_experiment(config, {"engine.num_gpu_blocks": needed[True]}))


def test_given_groups_are_counted_too(load):
    # 1,000 tokens: 63 blocks of 16; a window of 100 with two batches of 512 in flight: ceil(1,000 / 16) + 1
    groups = ('kv_cache_groups = [{kind = "full_attention"}, {kind = "sliding_attention", window = 100}], '
              "max_model_len = 1000, max_num_batched_tokens = 512, max_num_seqs = 8, num_gpu_blocks = %d")
    assert checked(load(groups % (63 + 64 + 1)))
    with pytest.raises(InputErrors, match="expected at least 128, found 127"):
        checked(load(groups % (63 + 64)))
