"""Configurations of models that do not generate: poolers on decoders, encoders, encoders with a decoder."""
import json

import pytest

import simulator
from simulator.config.huggingface.reader import read_config
from simulator.errors import InputErrors
from support.published_configs import CONFIGS

QWEN3 = CONFIGS["qwen3-0.6b"]
HIDDEN, VOCABULARY = 1024, 151_936


def written(folder, architecture, config=QWEN3, **keys):
    (folder / "config.json").write_text(json.dumps(config | {"architectures": [architecture]} | keys))
    return folder / "config.json"


@pytest.mark.parametrize("architecture", ["Qwen3Model", "Qwen3ForSequenceClassification", "Qwen3ForRewardModel"])
def test_a_pooler_on_a_decoder_is_the_decoder_without_its_head(architecture, tmp_path):
    decoder = read_config(written(tmp_path, "Qwen3ForCausalLM", tie_word_embeddings=False))
    pooled = read_config(written(tmp_path, architecture, tie_word_embeddings=False))

    assert not pooled.has_head
    assert decoder.num_parameters - pooled.num_parameters == HIDDEN * VOCABULARY


@pytest.mark.parametrize(("architecture", "reason"), [
    ("NomicBertModel", "an encoder with parts"), ("GteNewForSequenceClassification", "an encoder with parts"),
    ("ModernBertForMaskedLM", "an encoder with parts"),
    ("WhisperForConditionalGeneration", "an encoder with a decoder"),
    ("T5ForConditionalGeneration", "an encoder with a decoder"),
])
def test_encoders_are_refused_with_the_reason(architecture, reason, tmp_path):
    with pytest.raises(InputErrors, match=f'architectures: "{architecture}" is not supported: {reason}'):
        read_config(written(tmp_path, architecture))


@pytest.mark.parametrize("keys", [{"is_causal": False}, {"use_bidirectional_attention": True}])
def test_attention_in_both_directions_is_refused(keys, tmp_path):
    with pytest.raises(InputErrors, match=f"{next(iter(keys))}: attention in both directions is not supported"):
        read_config(written(tmp_path, "Qwen3Model", **keys))


def test_an_unknown_model_without_head_is_unknown(tmp_path):
    with pytest.raises(InputErrors, match='architectures: "NoSuchModel" is not supported'):
        read_config(written(tmp_path, "NoSuchModel"))


def test_a_model_without_head_serves_pooling_alone(tmp_path):
    written(tmp_path, "Qwen3ForSequenceClassification")
    (tmp_path / "experiment.toml").write_text("""
model = {config = "config.json"}
hardware = {name = "l4"}
latency = {backend = "roofline"}
engine = {task = "pooling", max_model_len = 4096}
[workload]
type = "synthetic"
num_requests = 5
arrival = {process = "poisson", rate_per_s = 5.0}
prompt_tokens = {distribution = "constant", tokens = 300}
output_tokens = {distribution = "constant", tokens = 1}
""")

    assert simulator.run(tmp_path / "experiment.toml").summary["requests"]["completed"] == 5
    with pytest.raises(InputErrors, match=r"model\.name: .* has no output head; expected scheduler"):
        simulator.run(tmp_path / "experiment.toml", {"engine.task": "generate"})
