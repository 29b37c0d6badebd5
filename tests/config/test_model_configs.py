"""Counts of published configurations: parameters, KV, states, blocks, stored bytes.

The models are folders with a config.json and an expected.json beside them, in ../shared/data/model_configs or
$SIM_MODEL_CONFIGS.
"""
import json
import os
from functools import cache
from pathlib import Path

import pytest

from simulator.config.huggingface.reader import read_config
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator
from simulator.domain.kv_groups import plan_groups
from simulator.domain.kv_layout import kv_layout
from simulator.domain.rank_weights import rank_weights
from simulator.errors import InputErrors

DEFAULT = Path(__file__).resolve().parents[3] / "shared/data/model_configs"
FOLDER = Path(os.environ.get("SIM_MODEL_CONFIGS", DEFAULT))
FILE = FOLDER / "expected.json"
EXPECTED = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
pytestmark = pytest.mark.skipif(not EXPECTED, reason=f"no {FILE}")

# Models that are refused, and a part of the reason.
REFUSED = {
    "deepseek-v4-flash": "architectures", "deepseek-v4-pro": "architectures", "gemma-3n-e4b": "architectures",
    "kimi-k3": "architectures", "llama-3_3-nemotron-super-49b-v1": "architectures", "longcat-flash": "architectures",
    "minimax-m3-nvfp4": "architectures", "nvidia-nemotron-3-super-120b-a12b-fp8": "moe_latent_size",
    "nvidia-nemotron-3-ultra-550b-a55b-bf16": "moe_latent_size", "qwen3.6-35b-a3b-nvfp4": "MIXED_PRECISION",
}
# Counts that are known to be wrong.
WRONG = {
    "kv": {"glm-5.2", "glm-5.2-nvfp4"},
    "parameters": {"falcon-h1-0.5b", "glm-5.2", "glm-5.2-nvfp4"},
    "weights": {"deepseek-v3.1-nvfp4", "gemma-4-26b-a4b-nvfp4", "mistral-small-3.2-24b", "qwen2-vl-7b",
                "qwen3-vl-2b-instruct", "qwen3-vl-4b-instruct", "qwen3-vl-30b-a3b-instruct", "qwen3.5-27b",
                "qwen3.5-122b-a10b-nvfp4"},
    "vision": {"gemma-4-26b-a4b-nvfp4", "kimi-k2.5", "mistral-small-3.2-24b", "qwen2-vl-7b", "qwen3-vl-2b-instruct",
               "qwen3-vl-4b-instruct", "qwen3-vl-30b-a3b-instruct", "qwen3.5-27b", "qwen3.5-122b-a10b-nvfp4",
               "qwen3.5-397b-a17b", "step-3.7-flash"},
}
TAKEN = [name for name, expected in EXPECTED.items() if name not in REFUSED and not expected.get("refusal_ok")]


def taken(count: str):
    """Return the models whose count is compared."""
    return pytest.mark.parametrize("name", [name for name in TAKEN if name not in WRONG.get(count, ())])


@cache
def model(name: str):
    return read_config(FOLDER / name)


def deployment(name: str) -> Deployment:
    return Deployment(model=model(name), accelerator=load_accelerator("h200-sxm-141gb"), kv_cache_dtype="bfloat16")


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items()
                                  if name in REFUSED or expected.get("refusal_ok")])
def test_a_refused_model_is_refused_by_name(name):
    with pytest.raises(InputErrors) as caught:
        read_config(FOLDER / name)

    assert REFUSED.get(name, "architectures") in str(caught.value)


@taken("parameters")
def test_parameters(name):
    # exact but for biases of routers, which the reference keeps outside its parameters
    expected, found = EXPECTED[name]["parameters"], model(name).num_parameters
    biases = sum(len(numbers) * layer.moe.num_experts * layer.moe.router_bias
                 for layer, numbers in model(name).kinds.items() if layer.moe)

    assert found in (expected, expected + biases)


@taken("vision")
def test_parameters_of_the_vision_tower(name):
    expected = EXPECTED[name]["vision_parameters"]

    assert expected is None or model(name).vision_parameters == pytest.approx(expected, rel=0.01)


@taken("kv")
def test_kv_bytes_of_a_token(name):
    expected, found = EXPECTED[name]["kv_bytes_per_token"], {"full": 0, "sliding": {}, "chunked": {}}
    for mixer, count in model(name).placed_mixers:
        num_bytes = count * mixer.part.token_bytes(2.0)
        if mixer.window:
            table = found["chunked" if mixer.chunked else "sliding"]
            table[str(mixer.window)] = table.get(str(mixer.window), 0) + num_bytes
        else:
            found["full"] += num_bytes

    assert found == {key: expected[key] for key in found}


@taken("state")
def test_state_bytes_of_a_sequence(name):
    found = kv_layout(deployment(name)).state_bytes_per_sequence

    assert found == EXPECTED[name]["state_bytes_per_sequence"]


@taken("hybrid")
def test_tokens_of_a_block_beside_states(name):
    expected = EXPECTED[name].get("hybrid")
    if expected is None:
        pytest.skip("no states beside attention")
    groups = plan_groups(deployment(name), 16, 8192).layers.groups

    assert next(group.block_size for group in groups if group.kind == "full_attention") == expected["block_tokens"]


@taken("weights")
def test_stored_bytes(name):
    expected = EXPECTED[name].get("weight_bytes")
    if expected is None:
        pytest.skip("not known")

    assert rank_weights(deployment(name)).num_bytes == pytest.approx(expected, rel=0.01)
