"""Hugging Face configurations give the same models as the fact files, and say what is wrong with them."""
import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.config.huggingface.families import FAMILIES
from simulator.config.huggingface.reader import read_config
from simulator.domain.facts import load_model
from simulator.domain.model_spec import Quantization, Unquantized
from simulator.errors import InputErrors
from support.published_configs import CONFIGS, FP8_BLOCKS

LLAMA = CONFIGS["llama-3.1-8b"]


def write(folder, config):
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return file


def shape(model):
    """Return the model without what only the fact file says, its pattern written out for every layer."""
    pattern = (model.layer_pattern * model.num_layers)[:model.num_layers]
    return replace(model, name="", hf_id="", aliases=(), model_type="", source="", date="", note="", published=None,
                   layer_pattern=pattern)


def faults(folder, config) -> list[str]:
    with pytest.raises(InputErrors) as caught:
        read_config(write(folder, config))
    return [fault.replace(f"{folder}/config.json: ", "") for fault in caught.value.faults]


@pytest.mark.parametrize("name", CONFIGS)
def test_config_of_a_known_model_gives_its_fact_file(name, tmp_path):
    model = read_config(write(tmp_path, CONFIGS[name]))

    if name == "gemma-4-26b-a4b":           # the file leaves out small vectors: 341,760 of 25 G weights
        assert model.num_parameters - load_model(name).num_parameters == 30 * (4 * 2816 + 128)
        model = replace(model, norms_per_layer=4, moe=replace(model.moe, router_bias=False))
    assert shape(model) == shape(load_model(name))
    assert model.num_parameters == load_model(name).num_parameters


def test_every_family_of_a_fact_file_is_covered_here():
    assert len({config["architectures"][0] for config in CONFIGS.values()}) >= 27
    assert {config["architectures"][0] for config in CONFIGS.values()} <= set(FAMILIES)


def test_model_takes_the_name_of_its_folder(tmp_path):
    folder = tmp_path / "my-llama"
    folder.mkdir()
    write(folder, LLAMA)

    assert read_config(folder).name == "my-llama"


@pytest.mark.parametrize(("section", "expected"), [
    ({"quant_method": "fp8"}, Quantization(method="fp8", weight_dtype="fp8")),
    (FP8_BLOCKS, Quantization(method="fp8", weight_dtype="fp8", group_size=128 * 128, scale_bits=32)),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128},
     Quantization(method="gptq", weight_dtype="int4", group_size=128, scale_bits=16 + 4)),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, Quantization(method="gptq", weight_dtype="int8")),
    ({"quant_method": "awq", "bits": 4, "group_size": 64},
     Quantization(method="awq", weight_dtype="int4", group_size=64, scale_bits=20)),
    ({"quant_method": "mxfp4"},
     Quantization(method="mxfp4", weight_dtype="fp4", scope="experts", group_size=32, scale_bits=8)),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True},
     Quantization(method="bitsandbytes", weight_dtype="int4", group_size=64, scale_bits=32)),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, Quantization(method="bitsandbytes", weight_dtype="int8")),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"},
     Quantization(method="modelopt", weight_dtype="fp4", group_size=16, scale_bits=8)),
    ({"quant_method": "compressed-tensors",
      "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}},
     Quantization(method="compressed-tensors", weight_dtype="fp8")),
    ({"quant_method": "compressed-tensors",
      "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 128}}}},
     Quantization(method="compressed-tensors", weight_dtype="int4", group_size=128, scale_bits=16)),
])
def test_quantisation_is_read(section, expected, tmp_path):
    config = CONFIGS["qwen3-30b-a3b"] if expected.scope == "experts" else LLAMA
    model = read_config(write(tmp_path, config | {"quantization_config": section}))

    assert model.quantization == expected


def test_a_format_of_experts_alone_leaves_a_dense_model_as_it_is(tmp_path):
    assert read_config(write(tmp_path, LLAMA | {"quantization_config": {"quant_method": "mxfp4"}})).quantization is None


W8 = {"weights": {"num_bits": 8, "type": "float"}}
STATIC_FP8 = {"num_bits": 8, "type": "float", "dynamic": False}


@pytest.mark.parametrize(("section", "expected"), [
    ({"quant_method": "compressed-tensors", "config_groups": {"a": W8}, "kv_cache_scheme": STATIC_FP8}, "fp8"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": W8}, "kv_cache_scheme": None}, None),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": STATIC_FP8}, "fp8"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "NVFP4"}, "fp4"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "INT8"}, None),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": STATIC_FP8 | {"dynamic": True}}, None),
    ({"producer": {"name": "modelopt"}, "quant_algo": "FP8", "kv_cache_scheme": "FP8"}, "fp8"),
    (FP8_BLOCKS, None),
])
def test_declared_kv_cache_is_read_as_vllm_reads_it(section, expected, tmp_path):
    model = read_config(write(tmp_path, LLAMA | {"quantization_config": section}))

    assert model.quantization.kv_cache_dtype == expected


def test_modelopt_file_beside_the_config_is_read(tmp_path):
    stated = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(stated))

    assert read_config(write(tmp_path, LLAMA)).quantization == Quantization(
        method="modelopt", weight_dtype="fp8", kv_cache_dtype="fp8")


@pytest.mark.parametrize(("ignored", "scope"), [
    (["re:.*self_attn.*"], "experts"), ([f"model.layers.{i}.self_attn*" for i in range(48)], "experts"),
    (["lm_head"], "linear"), (["model.layers.0.self_attn*"], "linear"),
])
def test_mixture_whose_attention_is_left_out_is_quantised_in_its_experts(ignored, scope, tmp_path):
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ignored}
    config = CONFIGS["qwen3-30b-a3b"] | {"quantization_config": section}       # 48 layers

    assert read_config(write(tmp_path, config)).quantization.scope == scope


@pytest.mark.parametrize(("section", "left"), [
    ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": [
        "lm_head", *(f"model.layers.{i}.self_attn.{x}_proj" for i in range(32) for x in "qkvo"),
        *(f"model.layers.{i}.mlp.{x}_proj" for i in (0, 31) for x in ("up", "gate", "down"))]},
     Unquantized(attention="all", mlp=(0, 31))),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {
        "num_bits": 8, "type": "float"}}}, "ignore": ["lm_head", r"re:.*layers\.3[01]\.mlp.*"]},
     Unquantized(mlp=(30, 31))),
    ({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.2"]}, Unquantized(attention=(2,), mlp=(2,))),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head", "*.mlp.gate"]}, None)])
def test_layers_that_a_checkpoint_leaves_alone_are_read(section, left, tmp_path):
    model = read_config(write(tmp_path, LLAMA | {"quantization_config": section}))

    assert model.quantization.unquantized == left


def test_yarn_scaling_lengthens_the_context_as_in_vllm(tmp_path):
    # 32768 tokens x factor 4
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    model = read_config(write(tmp_path, CONFIGS["qwen3-0.6b"] | {"rope_scaling": scaling}))

    assert model.max_position_embeddings == 131072


def test_mistral_without_the_key_slides_and_with_null_does_not(tmp_path):
    config = {key: value for key, value in CONFIGS["mistral-7b"].items() if key != "sliding_window"}

    assert read_config(write(tmp_path, config)).num_sliding_attention_layers == 32
    assert read_config(write(tmp_path, config | {"sliding_window": None})).num_sliding_attention_layers == 0


def test_qwen_with_sliding_window_slides_in_the_later_layers(tmp_path):
    config = CONFIGS["qwen2.5-0.5b"] | {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}
    model = read_config(write(tmp_path, config))

    assert model.layer_types == ("full_attention",) * 20 + ("sliding_attention",) * 4


def test_unknown_architecture_is_refused_by_name_with_the_nearest(tmp_path):
    assert faults(tmp_path, LLAMA | {"architectures": ["LlamaForCausalML"]})[0].startswith(
        'architectures: "LlamaForCausalML" is not supported; did you mean LlamaForCausalLM?; ')


def test_all_faults_are_reported_at_once(tmp_path):
    config = LLAMA | {"hidden_size": "4096", "num_attention_heads": 0, "tie_word_embeddings": 1,
                      "torch_dtype": "float64", "quantization_config": {"quant_method": "gpqt"}}
    del config["vocab_size"]

    assert sorted(faults(tmp_path, config)) == [
        'hidden_size: expected an integer >= 1, found "4096"',
        "num_attention_heads: expected an integer >= 1, found 0",
        'quantization_config.quant_method: unknown method "gpqt"; did you mean gptq?; valid: awq, bitsandbytes, '
        "compressed-tensors, experts_int8, fbgemm_fp8, fp8, gptq, inc, modelopt, mxfp4, mxfp8, quark, w8a8_fp8, "
        "w8a8_int8",
        "tie_word_embeddings: expected true or false, found 1",
        'torch_dtype: expected one of float32, bfloat16, float16, found "float64"',
        "vocab_size: required key is missing",
    ]


@pytest.mark.parametrize(("name", "keys", "dense"), [
    ("qwen3-30b-a3b", {"mlp_only_layers": [3, 7]}, {3, 7}),
    ("qwen3-30b-a3b", {"mlp_only_layers": [3], "decoder_sparse_step": 2}, {*range(0, 48, 2), 3}),
    ("deepseek-v3", {"moe_layer_freq": 2}, {0, 1, 2, *range(3, 61, 2)}),
    ("deepseek-v3", {"moe_layer_freq": [0] * 60 + [1]}, set(range(60))),
    ("deepseek-v3", {"mlp_layer_types": ["sparse", "dense"] * 30 + ["hash_moe"]}, set(range(1, 60, 2))),
])
def test_experts_may_be_on_any_layers(name, keys, dense, tmp_path):
    model = read_config(write(tmp_path, CONFIGS[name] | keys))

    assert {i for i, kind in enumerate(model.feed_forward_types) if kind == "dense"} == dense
    assert model.num_moe_layers == model.num_layers - len(dense)


def test_groups_that_do_not_divide_the_heads_are_refused(tmp_path):
    fault, = faults(tmp_path, LLAMA | {"num_key_value_heads": 5})

    assert fault == "num_key_value_heads: expected a divisor of the 32 heads, found 5"


def test_broken_json_is_reported_with_line_and_column(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{\n  "hidden_size": 4096,\n  oops\n}')

    with pytest.raises(InputErrors) as caught:
        read_config(file)

    assert str(caught.value).startswith(f"{file}:3: column 3: not JSON: ")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"3", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"])
def test_what_is_no_json_object_is_refused(content, tmp_path):
    (tmp_path / "config.json").write_bytes(content)

    with pytest.raises(InputErrors):
        read_config(tmp_path)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(InputErrors, match="No such file"):
        read_config(tmp_path / "config.json")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([0, -1, 1, 2**31, 2**64, "full_attention", "fp8", "yarn", "bfloat16"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=8)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_fuzzed_configs_give_a_model_or_input_errors(data, tmp_path_factory):
    config = copy.deepcopy(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))])
    for table in [config, config.get("text_config"), config.get("quantization_config"), config.get("rope_scaling")]:
        if isinstance(table, dict):
            for key in data.draw(st.lists(st.sampled_from(sorted(table)), max_size=3)):
                table[key] = data.draw(JUNK)
    file = tmp_path_factory.getbasetemp() / "config.json"
    file.write_text(json.dumps(config))

    model, found = None, ()
    try:
        model = read_config(file)
    except InputErrors as error:
        found = error.faults

    assert all(fault.startswith(str(file)) for fault in found)
    assert (model is None) == bool(found)
    assert model is None or model.num_parameters > 0
