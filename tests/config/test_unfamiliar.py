"""Architectures without rules of their own: read by standard keys, with assumptions named, or refused by key."""
import json

import pytest

import simulator
from config.test_model_configs import EXPECTED, FOLDER
from simulator.config.huggingface.reader import read_config
from simulator.domain.deployment import Deployment
from simulator.domain.kv_layout import kv_layout
from simulator.errors import InputErrors
from support.published_configs import CONFIGS

STATED = {"architectures": ["MorningForCausalLM"], "hidden_act": "silu", "tie_word_embeddings": False,
          "rms_norm_eps": 1e-6}
LLAMA = CONFIGS["llama-3.1-8b"] | STATED
QWEN3_MOE = CONFIGS["qwen3-30b-a3b"] | STATED
PUBLISHED = CONFIGS | {f"shared-{name}": json.loads((FOLDER / name / "config.json").read_text()) for name in EXPECTED}


def read(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    return read_config(folder)


def faults(folder, config) -> list[str]:
    with pytest.raises(InputErrors) as caught:
        read(folder, config)
    return [fault.replace(f"{folder}/config.json: ", "") for fault in caught.value.faults]


def test_plain_attention_with_a_network_is_read(tmp_path):
    model = read(tmp_path, LLAMA)

    assert model.num_parameters == 8_030_261_248            # Llama-3.1-8B, as the hub's page has it
    assert model.architecture == "MorningForCausalLM"
    assert model.checkpoint_note == (
        "MorningForCausalLM is no architecture with rules of its own: its config.json is read by standard keys, with "
        "these assumptions: RMSNorm, two a layer; networks with a gate, by hidden_act = \"silu\"; head_dim = "
        "hidden_size / heads; no biases of attention; no norm of queries and keys")


def test_experts_are_read(tmp_path):
    model = read(tmp_path, QWEN3_MOE | {"use_qk_norm": True})

    assert model.num_parameters == 30_532_122_624           # Qwen3-30B-A3B, as the hub's page has it
    assert (model.moe.num_experts, model.moe.experts_per_token) == (128, 8)


def test_a_network_without_gate_follows_from_the_activation(tmp_path):
    gated, plain = (read(tmp_path, LLAMA | {"hidden_act": name}) for name in ("silu", "relu2"))

    assert gated.num_parameters - plain.num_parameters == 32 * 4096 * 14336
    assert "networks without gate" in plain.checkpoint_note


def test_latent_attention_is_read(tmp_path):
    known = read(tmp_path, CONFIGS["deepseek-v3"])
    model = read(tmp_path, CONFIGS["deepseek-v3"] | STATED | {"topk_method": "noaux_tc"})

    assert model.num_parameters == known.num_parameters
    assert model.attention == known.attention


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_known_model_under_an_unknown_name_is_right_or_refused(name, tmp_path):
    try:
        known = read(tmp_path, PUBLISHED[name])
    except InputErrors:
        pytest.skip("refused under its own name")
    try:
        found = read(tmp_path, PUBLISHED[name] | {"architectures": ["MorningForCausalLM"]})
    except InputErrors:
        return
    assert found.num_parameters == pytest.approx(known.num_parameters, rel=0.01)
    assert kv_layout(Deployment(model=found, accelerator=None)) == kv_layout(Deployment(model=known, accelerator=None))
    assert [each[1:] for each in found.attentions] == [each[1:] for each in known.attentions]


def test_keys_of_another_structure_are_named_all_at_once(tmp_path):
    found = faults(tmp_path, LLAMA | {"conv_kernel_of_keys": 4, "memory_slots": [1, 2], "dropout_of_something": False})

    assert [fault.partition(":")[0] for fault in found] == ["conv_kernel_of_keys", "memory_slots"]
    assert found[0] == ("conv_kernel_of_keys: found 4, a key that is not read for architectures without rules of their "
                        "own: it may describe another structure; if it changes neither weights nor KV cache, remove it "
                        "from the file")


@pytest.mark.parametrize(("keys", "fault"), [
    ({"hidden_act": "xielu"}, 'hidden_act: found "xielu": whether networks have a gate follows from it; expected one'),
    ({"tie_word_embeddings": None}, "tie_word_embeddings: required key is missing: the default"),
    ({"hidden_act": None, "rms_norm_eps": None}, "hidden_act: required key is missing: whether networks have a gate"),
    ({"sliding_window": 4096}, "sliding_window: found 4096 and none of use_sliding_window, layer_types"),
    ({"layer_types": ["full_attention", "linear_attention"] * 16}, "layer_types: expected only"),
    ({"is_encoder_decoder": True}, "is_encoder_decoder: found true, a key that is not read"),
    ({"is_causal": False}, "is_causal: attention in both directions"),
])
def test_what_cannot_be_known_is_refused(keys, fault, tmp_path):
    found, = faults(tmp_path, LLAMA | keys)

    assert found.startswith(fault)


def test_windows_of_listed_layers_are_read(tmp_path):
    model = read(tmp_path, LLAMA | {"sliding_window": 1024, "layer_types": ["full_attention"] + [
        "sliding_attention"] * 31})

    assert [(count, window) for _, count, window in model.attentions] == [(1, 0), (31, 1024)]
    assert read(tmp_path, LLAMA | {"sliding_window": 1024, "use_sliding_window": False}).attentions[0][1] == 32


def test_contradictory_sizes_are_found_beside_other_faults(tmp_path):
    config = QWEN3_MOE | {"num_key_value_heads": 5, "num_experts_per_tok": 200, "vocab_size": None, "odd_key": 1,
                          "quantization_config": {"quant_method": "gpqt"}}
    found = faults(tmp_path, config)

    assert [fault.partition(":")[0] for fault in found] == [
        "odd_key", "vocab_size", "num_key_value_heads", "num_experts_per_tok", "quantization_config.quant_method"]
    assert found[2:4] == ["num_key_value_heads: expected a divisor of the 32 heads, found 5",
                          "num_experts_per_tok: expected at most the 128 experts, found 200"]


@pytest.mark.parametrize(("names", "what"), [
    (None, "required key is missing"), ([], "expected a list of names, found []"), ("Llama", "expected a list")])
def test_a_config_without_architecture_shows_its_other_faults(names, what, tmp_path):
    found = faults(tmp_path, LLAMA | {"architectures": names, "hidden_size": 0, "num_key_value_heads": 7})

    assert [fault.partition(":")[0] for fault in found][:2] == ["architectures", "hidden_size"]
    assert found[0].startswith(f"architectures: {what}")
    assert any(fault.startswith("num_key_value_heads: expected a divisor") for fault in found)


def test_assumptions_are_in_the_diagnosis_of_a_run(tmp_path):
    read(tmp_path, LLAMA)
    (tmp_path / "experiment.toml").write_text("""
model = {config = "config.json"}
hardware = {name = "h100-sxm-80gb"}
latency = {backend = "roofline"}
engine = {max_model_len = 4096}
[workload]
type = "synthetic"
num_requests = 3
arrival = {process = "poisson", rate_per_s = 5.0}
prompt_tokens = {distribution = "constant", tokens = 300}
output_tokens = {distribution = "constant", tokens = 2}
""")
    result = simulator.run(tmp_path / "experiment.toml")

    assert result.summary["requests"]["completed"] == 3
    assert "MorningForCausalLM is no architecture with rules of its own" in str(result.summary["diagnosis"])
