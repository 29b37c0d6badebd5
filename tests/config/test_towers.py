"""Vision towers of config.json files: weights to the digit, shapes, and towers of unknown kind."""
import json

import msgspec
import pytest
from msgspec.structs import replace

from simulator.config.huggingface.keys import Keys
from simulator.config.huggingface.reader import read_config
from simulator.config.huggingface.vision import vision_fields
from simulator.domain.deployment import Deployment
from simulator.domain.embeddings import embedding_bytes
from simulator.domain.facts import load_model
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights
from simulator.domain.towers import Tower
from support.goldens import GOLDENS
from support.published_configs import CONFIGS

SHARED = GOLDENS.parent / "data" / "model_configs"
EXPECTED = json.loads((SHARED / "expected.json").read_text()) if SHARED.is_dir() else {}

QWEN3_VL = {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "patch_size": 16,
            "num_position_embeddings": 2304, "deepstack_visual_indexes": [8, 16, 24], "model_type": "qwen3_vl"}
GEMMA4 = {"model_type": "gemma4_vision", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
          "num_attention_heads": 16, "head_dim": 72}


def fields(architecture, vision, hidden, **top):
    keys = Keys({"architectures": [architecture], "vision_config": vision, "hidden_size": hidden} | top, "config.json")
    found = vision_fields(keys)
    return found, keys.faults


# Parameters: huggingface/transformers' classes built without weights, and the sums that hub pages print.
@pytest.mark.parametrize(("architecture", "vision", "hidden", "parameters"), [
    ("Qwen2VLForConditionalGeneration", {"depth": 32, "embed_dim": 1280, "num_heads": 16}, 3584, 675_759_104),
    ("Qwen2_5_VLForConditionalGeneration",
     {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584,
      "model_type": "qwen2_5_vl"}, 3584, 676_550_144),
    ("Qwen3VLForConditionalGeneration", QWEN3_VL, 4096, 576_388_336),
    ("Qwen3VLForConditionalGeneration", QWEN3_VL | {"out_hidden_size": 5120}, 5120, 595_266_800),
    ("Qwen3_5ForConditionalGeneration",
     QWEN3_VL | {"deepstack_visual_indexes": [], "model_type": "qwen3_5"}, 5120, 460_730_096),
    ("Qwen3_5MoeForConditionalGeneration",
     QWEN3_VL | {"deepstack_visual_indexes": [], "model_type": "qwen3_5_moe"}, 2048, 446_571_248),
    ("KimiK25ForConditionalGeneration", {}, 7168, 471_143_920),
    ("Gemma4ForConditionalGeneration", GEMMA4, 2816, 572_792_112),
    ("Mistral3ForConditionalGeneration",
     {"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
      "num_attention_heads": 16, "patch_size": 14}, 5120, 438_958_080),
    ("MiniMaxM3SparseForConditionalGeneration", {"model_type": "clip_vision_model"}, 6144, 865_567_232),
    ("Step3p7ForConditionalGeneration", {"model_type": "step3p5_vision"}, 4096, 1_981_014_784),
])
def test_weights_of_a_tower_agree_to_the_digit(architecture, vision, hidden, parameters):
    found, faults = fields(architecture, vision, hidden)

    assert faults == []
    assert found["vision_parameters"] == parameters
    assert "unknown_towers" not in found


@pytest.mark.parametrize("name", [name for name, model in EXPECTED.items() if model["vision_parameters"]])
def test_weights_of_recorded_towers_agree_to_the_digit(name):
    config = json.loads((SHARED / name / "config.json").read_text())
    hidden = config.get("text_config", config)["hidden_size"]

    found, faults = fields(config["architectures"][0], config["vision_config"], hidden,
                           **{key: value for key, value in config.items() if type(value) is int})

    assert (faults, found["vision_parameters"]) == ([], EXPECTED[name]["vision_parameters"])


@pytest.mark.parametrize("name", ["gemma-3-4b", "gemma-4-26b-a4b", "qwen3.5-27b", "llama-4-scout"])
def test_tower_of_a_fact_file_is_that_of_its_config(name, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS[name]))

    assert read_config(file).vision == load_model(name).vision is not None


@pytest.mark.parametrize(("architecture", "vision", "top", "told"), [
    ("Gemma3ForConditionalGeneration", {"model_type": "mobilenet"}, {}, ("vision_config of mobilenet",)),
    ("LlamaForCausalLM", {"hidden_size": 64}, {}, ("vision_config of LlamaForCausalLM",)),
    ("KimiK25ForConditionalGeneration", {"mm_projector_type": "patchmergerv2"}, {},
     ("vision_config of KimiK25ForConditionalGeneration",)),
    ("Gemma4ForConditionalGeneration", GEMMA4, {"audio_config": {"model_type": "gemma4_audio"}},
     ("audio_config of gemma4_audio",)),
])
def test_tower_of_unknown_kind_is_named(architecture, vision, top, told):
    found, faults = fields(architecture, vision, 64, **top)

    assert faults == []
    assert found["unknown_towers"] == told


@pytest.mark.parametrize(("vision", "fault"), [
    ({"depth": 0}, "config.json: vision_config: depth: expected an integer >= 1, found 0"),
    ({"deepstack_visual_indexes": 3}, "config.json: vision_config: deepstack_visual_indexes: expected a list"),
])
def test_faults_of_a_tower_name_their_key(vision, fault):
    _, faults = fields("Qwen3VLForConditionalGeneration", QWEN3_VL | vision, 4096)

    assert len(faults) == 1 and faults[0].startswith(fault)


def test_deepstack_sends_a_vector_for_each_level():
    found, _ = fields("Qwen3VLForConditionalGeneration", QWEN3_VL, 4096)
    model = replace(load_model("qwen3-8b"), vision=msgspec.convert(found["vision"], Tower))

    assert embedding_bytes(Deployment(model=model, accelerator=None)) == 4 * 4096 * 2
    assert embedding_bytes(Deployment(model=load_model("qwen3.5-27b"), accelerator=None)) == 5120 * 2


def on_rank(name, tensor_parallel):
    ways = Parallelism(tensor_parallel=tensor_parallel)
    return rank_weights(Deployment(model=load_model(name), accelerator=None, parallelism=ways)).vision


def test_ranks_split_the_blocks_and_hold_the_rest_whole():
    # Qwen3.5-27B: patches 1536 x 1152, biases and norms of 27 blocks, positions and a norm are whole
    whole = 1536 * 1152 + 1152 + 2304 * 1152 + 27 * 6 * 1152 + 2 * 1152 + 5120

    assert on_rank("qwen3.5-27b", 1) == 460_730_096
    assert on_rank("qwen3.5-27b", 4) == pytest.approx((460_730_096 - whole) / 4 + whole, abs=1e-3)


def test_vllm_does_not_split_the_tower_of_gemma_4():
    assert on_rank("gemma-4-26b-a4b", 2) == 572_792_112
