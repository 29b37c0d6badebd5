"""The format of each matrix as checkpoints declare it: every published table at hand, and each form of one."""
import json
from collections import Counter
from pathlib import Path

import pytest

from simulator.config.huggingface.formats import read_formats, stated_table
from simulator.config.huggingface.keys import Keys
from simulator.config.huggingface.module_names import Rows, without_equal_experts
from simulator.domain.facts import load_accelerator
from simulator.domain.stored_format import Format
from simulator.errors import InputErrors

CONFIGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "model_configs"
EXPECTED = json.loads((CONFIGS / "expected.json").read_text(encoding="utf-8")) if CONFIGS.is_dir() else {}
NAMES = {("fp8", 128, 128): "fp8_block", ("fp8", 0, 0): "fp8", ("fp8", 1, 32): "mxfp8", ("fp4", 1, 16): "nvfp4",
         ("fp4", 1, 32): "mxfp4", ("int4", 1, 16): "nvfp4", ("int4", 1, 32): "int4_g32", ("int4", 1, 128): "awq128"}


def read(table, **model):
    keys = Keys(model | {"quantization_config": table}, "config.json")
    formats = read_formats(keys)
    assert keys.faults == []
    return formats


def faults(table, **model):
    keys = Keys(model | {"quantization_config": table}, "config.json")
    read_formats(keys)
    return [fault.removeprefix("config.json: quantization_config.") for fault in keys.faults]


def config_of(name):
    return json.loads((CONFIGS / name / "config.json").read_text(encoding="utf-8"))


def formats_of(name):
    config, beside = config_of(name), CONFIGS / name / "hf_quant_config.json"
    table = stated_table(config, json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else None)
    return read(table, **{key: config[key] for key in ("expert_dtype", "model_type") if key in config})


def named(form):
    return "bf16" if form is None else NAMES[form.weight_dtype, form.rows, form.columns]


def mlp(prefix, h, w, names=("gate_proj", "up_proj", "down_proj"), count=1):
    *wide, down = names
    return {f"{prefix}.{each}": (w, h, count) for each in wide} | {f"{prefix}.{down}": (h, w, count)}


def multi_head(prefix, c, heads=None, kv=None, dim=None, gated=False):
    heads, kv = heads or c["num_attention_heads"], kv or c["num_key_value_heads"]
    h, dim = c["hidden_size"], dim or c.get("head_dim") or c["hidden_size"] // heads
    return {f"{prefix}.q_proj": (heads * dim * (1 + gated), h, 1), f"{prefix}.k_proj": (kv * dim, h, 1),
            f"{prefix}.v_proj": (kv * dim, h, 1), f"{prefix}.o_proj": (h, heads * dim, 1)}


def latent(prefix, c, has_index=False):
    h, q, r, heads = c["hidden_size"], c["q_lora_rank"], c["kv_lora_rank"], c["num_attention_heads"]
    dn, dr, dv = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    found = {"q_a_proj": (q, h, 1), "q_b_proj": (heads * (dn + dr), q, 1), "kv_a_proj_with_mqa": (r + dr, h, 1),
             "kv_b_proj": (heads * (dn + dv), r, 1), "o_proj": (h, heads * dv, 1)}
    if has_index:
        wide, n = c["index_head_dim"], c["index_n_heads"]
        found |= {"indexer.wq_b": (n * wide, q, 1), "indexer.wk": (wide, h, 1)}
    return {f"{prefix}.{name}": shape for name, shape in found.items()}


def deepseek(c, indexed=()):
    found = {}
    for i in range(c["num_hidden_layers"]):
        layer, h, w = f"model.layers.{i}", c["hidden_size"], c["moe_intermediate_size"]
        found |= latent(f"{layer}.self_attn", c, i in indexed)
        if i < c["first_k_dense_replace"]:
            found |= mlp(f"{layer}.mlp", h, c["intermediate_size"])
        else:
            found |= mlp(f"{layer}.mlp.experts.0", h, w, count=c["n_routed_experts"])
            found |= mlp(f"{layer}.mlp.shared_experts", h, w * c["n_shared_experts"])
            found[f"{layer}.mlp.gate"] = (c["n_routed_experts"], h, 1)
    return found


def sparse(c):
    kinds = c.get("indexer_types") or ["full"] * c["num_hidden_layers"]
    return deepseek(c, [i for i, kind in enumerate(kinds) if kind == "full"])


def qwen(c):
    found = {}
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        found |= multi_head(f"{layer}.self_attn", c)
        if "num_experts" in c:
            found |= mlp(f"{layer}.mlp.experts.7", c["hidden_size"], c["moe_intermediate_size"], count=c["num_experts"])
            found[f"{layer}.mlp.gate"] = (c["num_experts"], c["hidden_size"], 1)
        else:
            found |= mlp(f"{layer}.mlp", c["hidden_size"], c["intermediate_size"])
    return found


def qwen35(c):
    found, h = {}, c["hidden_size"]
    key, value = (c[f"linear_num_{each}_heads"] * c[f"linear_{each}_head_dim"] for each in ("key", "value"))
    for i, kind in enumerate(c["layer_types"]):
        layer = f"model.language_model.layers.{i}"
        if kind == "full_attention":
            found |= multi_head(f"{layer}.self_attn", c, gated=True)
        else:
            mixer, n = f"{layer}.linear_attn", c["linear_num_value_heads"]
            found |= {f"{mixer}.in_proj_qkv": (2 * key + value, h, 1), f"{mixer}.in_proj_z": (value, h, 1),
                      f"{mixer}.in_proj_b": (n, h, 1), f"{mixer}.in_proj_a": (n, h, 1),
                      f"{mixer}.out_proj": (h, value, 1)}
        found |= mlp(f"{layer}.mlp.experts.0", h, c["moe_intermediate_size"], count=c["num_experts"])
        found |= mlp(f"{layer}.mlp.shared_expert", h, c["shared_expert_intermediate_size"])
        found |= {f"{layer}.mlp.gate": (c["num_experts"], h, 1), f"{layer}.mlp.shared_expert_gate": (1, h, 1)}
    return found | {"lm_head": (c["vocab_size"], h, 1)}


def gemma4(c):
    found, h = {}, c["hidden_size"]
    for i, kind in enumerate(c["layer_types"]):
        layer, full = f"model.language_model.layers.{i}", kind == "full_attention"
        found |= multi_head(f"{layer}.self_attn", c, kv=c["num_global_key_value_heads"] if full else None,
                            dim=c["global_head_dim"] if full else None)
        found |= mlp(f"{layer}.mlp", h, c["intermediate_size"])
        found |= mlp(f"{layer}.experts.0", h, c["moe_intermediate_size"], count=c["num_experts"])
    return found


def gpt_oss(c):
    found, h, w, n = {}, c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    for i in range(c["num_hidden_layers"]):
        found |= multi_head(f"model.layers.{i}.self_attn", c)
        found |= {f"model.layers.{i}.mlp.experts.gate_up_proj": (2 * w, h, n),
                  f"model.layers.{i}.mlp.experts.down_proj": (h, w, n), f"model.layers.{i}.mlp.router": (n, h, 1)}
    return found


def minimax_m2(c):
    found = {}
    for i in range(c["num_hidden_layers"]):
        found |= multi_head(f"model.layers.{i}.self_attn", c)
        found |= mlp(f"model.layers.{i}.block_sparse_moe.experts.3", c["hidden_size"], c["intermediate_size"],
                     ("w1", "w3", "w2"), c["num_local_experts"])
        found[f"model.layers.{i}.block_sparse_moe.gate"] = (c["num_local_experts"], c["hidden_size"], 1)
    return found


def minimax_m3(c):
    found, h = {}, c["hidden_size"]
    index = c["sparse_attention_config"]
    for i, is_sparse in enumerate(c["moe_layer_freq"]):
        layer = f"language_model.model.layers.{i}"
        found |= multi_head(f"{layer}.self_attn", c)
        if not is_sparse:
            found |= mlp(f"{layer}.mlp", h, c["dense_intermediate_size"])
            continue
        wide, moe = index["sparse_index_dim"], f"{layer}.block_sparse_moe"
        found |= {f"{layer}.self_attn.index_q_proj": (index["sparse_num_index_heads"] * wide, h, 1),
                  f"{layer}.self_attn.index_k_proj": (wide, h, 1)}
        found |= mlp(f"{moe}.shared_experts", h, c["shared_intermediate_size"])
        found |= mlp(f"{moe}.experts.99", h, c["intermediate_size"], ("w1", "w3", "w2"), c["num_local_experts"])
    return found


def nemotron(c):
    found, h, latent_width, n = {}, c["hidden_size"], c["moe_latent_size"], c["n_routed_experts"]
    inner = c["mamba_num_heads"] * c["mamba_head_dim"]
    projected = 2 * inner + 2 * c["n_groups"] * c["ssm_state_size"] + c["mamba_num_heads"]
    for i, letter in enumerate(c["hybrid_override_pattern"]):
        mixer = f"backbone.layers.{i}.mixer"
        if letter == "M":
            found |= {f"{mixer}.in_proj": (projected, h, 1), f"{mixer}.out_proj": (h, inner, 1)}
        elif letter == "*":
            found |= multi_head(mixer, c)
        else:
            found |= mlp(f"{mixer}.experts.0", latent_width, c["moe_intermediate_size"], ("up_proj", "down_proj"), n)
            found |= mlp(f"{mixer}.shared_experts", h, c["moe_shared_expert_intermediate_size"],
                         ("up_proj", "down_proj"))
            found |= {f"{mixer}.fc1_latent_proj": (latent_width, h, 1), f"{mixer}.gate": (n, h, 1),
                      f"{mixer}.fc2_latent_proj": (h, latent_width, 1)}
    return found


def mimo(c):
    found, h = {}, c["hidden_size"]
    for i, (slides, is_sparse) in enumerate(zip(c["hybrid_layer_pattern"], c["moe_layer_freq"], strict=True)):
        layer, heads = f"model.layers.{i}", c["num_attention_heads"]
        kv = c["swa_num_key_value_heads"] if slides else c["num_key_value_heads"]
        found |= {f"{layer}.self_attn.q_proj": (heads * c["head_dim"], h, 1),
                  f"{layer}.self_attn.k_proj": (kv * c["head_dim"], h, 1),
                  f"{layer}.self_attn.v_proj": (kv * c["v_head_dim"], h, 1),
                  f"{layer}.self_attn.o_proj": (h, heads * c["v_head_dim"], 1)}
        found |= (mlp(f"{layer}.mlp.experts.0", h, c["moe_intermediate_size"], count=c["n_routed_experts"])
                  if is_sparse else mlp(f"{layer}.mlp", h, c["intermediate_size"]))
    return found


PUBLISHED = {
    "deepseek-v3.1-nvfp4": deepseek, "deepseek-v3.2": sparse, "glm-5-fp8": sparse, "glm-5.2-nvfp4": sparse,
    "kimi-k2-thinking": deepseek, "kimi-k2.5": deepseek, "qwen3-235b-a22b-fp8": qwen, "qwen2.5-72b-awq": qwen,
    "qwen3-32b-fp8-static-pertensor": qwen, "qwen3.5-122b-a10b-nvfp4": qwen35, "qwen3.6-35b-a3b-nvfp4": qwen35,
    "mimo-v2-flash": mimo, "gemma-4-26b-a4b-nvfp4": gemma4, "gpt-oss-120b": gpt_oss, "minimax-m2.5-nvfp4": minimax_m2,
    "minimax-m3-nvfp4": minimax_m3, "nvidia-nemotron-3-super-120b-a12b-fp8": nemotron}


@pytest.mark.skipif(not EXPECTED, reason="no model_configs beside the checkout")
@pytest.mark.parametrize("name", PUBLISHED)
def test_matrices_of_a_published_checkpoint_have_its_formats_and_bytes(name):
    config, row = config_of(name), EXPECTED[name]
    formats, text = formats_of(name), config.get("text_config", config)
    elements, stored = Counter(), 0.0
    for module, (rows, columns, count) in PUBLISHED[name](text).items():
        form = formats.format_of(module)
        elements[named(form)] += rows * columns * count
        stored += form.stored_bytes(rows, columns) * count if form else 2 * rows * columns * count
    total = row["parameters"] + (row["vision_parameters"] or 0)
    stored += 2 * (total - sum(elements.values()))      # embedding, norms, towers

    # Weights of the indexer's heads stay in 16 bit in vLLM (0.005 %); the row has them in the format. MiniMax-M3's
    # table names gate and up of 57 shared experts MXFP8, the row has both in 16 bit: 2 x 57 x 3,072 x 6,144 weights.
    quantised = {each: count for each, count in row["weight_elements"].items() if each != "bf16"}
    assert {each for each in elements if each != "bf16"} == set(quantised)
    named_plain = 2 * 57 * 3072 * 6144 if name == "minimax-m3-nvfp4" else 0
    for each, count in quantised.items():
        assert elements[each] == pytest.approx(count + (named_plain if each == "mxfp8" else 0), rel=1e-4)
    assert stored == pytest.approx(row["weight_bytes"] - named_plain * (2 - 33 / 32), rel=1e-4)


@pytest.mark.parametrize(("table", "dtype"), [
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4"),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, "int4"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": {
        "weights": {"num_bits": 4, "type": "float", "group_size": 16}, "input_activations": None}}}, "int4"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": {
        "weights": {"num_bits": 4, "type": "float", "group_size": 16}, "input_activations": {"num_bits": 4}}}}, "fp4")])
def test_weights_alone_in_nvfp4_are_unpacked_to_16_bit(table, dtype):
    form = read(table).format_of("model.layers.0.mlp.up_proj")
    card = load_accelerator("b200-sxm-180gb")

    assert form.weight_dtype == dtype
    assert form.stored_bytes(100, 384) == 19_200 + 2_400 + 8        # the same bytes in either
    assert card.compute_dtype(dtype) == ("bfloat16" if dtype == "int4" else "fp4")


def test_experts_with_the_row_of_the_first_need_no_row():
    rows = {f"model.layers.0.mlp.experts.{expert}.up_proj": {"quant_algo": "NVFP4"} for expert in (0, 1, 10)}
    rows |= {"model.layers.0.mlp.experts.2.up_proj": {"quant_algo": "FP8"},
             "model.layers.1.mlp.experts.3.up_proj": {"quant_algo": "FP8"}, "model.layers.0.self_attn.o_proj": {"a": 2}}
    kept = without_equal_experts(rows)

    assert set(rows) - set(kept) == {f"model.layers.0.mlp.experts.{expert}.up_proj" for expert in (1, 10)}
    table = Rows(kept)
    assert all(table.get(name) == row for name, row in rows.items())
    assert without_equal_experts(rows | {"model.layers.0.mlp.experts": {}}) == rows | {"model.layers.0.mlp.experts": {}}


@pytest.mark.skipif(not EXPECTED, reason="no model_configs beside the checkout")
def test_every_quantised_config_at_hand_is_tested():
    quantised = {name for name, row in EXPECTED.items() if set(row.get("weight_elements") or ()) - {"bf16"}}

    assert quantised == set(PUBLISHED)


def test_experts_of_deepseek_v4_are_in_mxfp4_beside_fp8_blocks_with_short_scales():
    formats = read({"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}, expert_dtype="fp4")
    expert, shared = (formats.format_of(f"layers.5.ffn.{each}.w1") for each in ("experts.3", "shared_experts"))

    assert expert.stored_bytes(2048, 4096) == 2048 * 4096 * (1 / 2 + 1 / 32)
    assert shared.stored_bytes(2048, 4096) == 2048 * 4096 + 16 * 32             # a byte a block
    assert formats.format_of("layers.5.ffn.gate") is None
    assert formats.format_of("layers.5.attn.compressor.wkv") is None
    plain = read({"quant_method": "fp8", "weight_block_size": [128, 128]}, expert_dtype="fp8")
    assert plain.format_of("layers.5.ffn.experts.3.w1").stored_bytes(2048, 4096) == 2048 * 4096 + 4 * 16 * 32


@pytest.mark.parametrize(("algorithm", "multiplied"), [
    ("W4A8_NVFP4_FP8", "fp8"), ("W4A8_MXFP4_FP8", "fp8"), ("W4A8_AWQ", "fp8"), ("NVFP4", None), ("W4A16_NVFP4", None),
    ("MXFP4", None)])
def test_products_of_w4a8_are_in_fp8(algorithm, multiplied):
    found = read({"quant_method": "modelopt", "quant_algo": algorithm}).format_of("layers.0.self_attn.q_proj")
    assert found.multiplied_as == multiplied


@pytest.mark.parametrize(("table", "module", "stored"), [      # of 100 outputs x 384 inputs
    ({"quant_method": "fp8"}, "q_proj", 38_400 + 8),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "q_proj", 38_400 + 4 * 3),
    ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": []}, "q_proj", 38_400 + 4 * 100),
    ({"quant_method": "modelopt", "quant_algo": "fp8"}, "q_proj", 38_400 + 8),
    ({"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}, "q_proj", 38_400 + 4 * 100),
    ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "q_proj", 38_400 + 4 * 3),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "q_proj", 19_200 + 2_400 + 8),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, "q_proj", 19_200 + 2_400 + 8),
    ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "q_proj", 19_200 + 2 * 300),
    ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "q_proj", 38_400 + 1_200),
    ({"quantization": {"quant_algo": "FP8"}}, "q_proj", 38_400 + 8),
    ({"producer": {"name": "modelopt"}, "quant_algo": "NVFP4"}, "q_proj", 19_200 + 2_400 + 8),
    ({"quant_method": "mxfp4"}, "mlp.experts.0.up_proj", 19_200 + 1_200),
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, "q_proj", 19_200 + 300 * 2.5),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "q_proj", 38_400 + 100 * 3),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}, "lm_head", 19_200 + 300 * 2.5),
    ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "q_proj", 19_200 + 300 * 2.5),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "q_proj", 19_200 + 4 * 600),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "q_proj", 19_800),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "q_proj", 38_400 + 4 * 100),
    ({"quant_method": "experts_int8"}, "mlp.experts.0.up_proj", 38_400 + 4 * 100),
    ({"quant_method": "quark", "global_quant_config": {"weight": {
        "dtype": "fp4", "qscheme": "per_group", "group_size": 32}}}, "q_proj", 19_200 + 1_200),
    ({"quant_method": "quark", "global_quant_config": {"weight": {
        "dtype": "fp8_e4m3", "qscheme": "per_tensor"}}, "exclude": ["lm_head"]}, "q_proj", 38_400 + 8)])
def test_bytes_of_a_matrix_are_those_of_its_method(table, module, stored):
    module = module if "." in module or module == "lm_head" else f"self_attn.{module}"
    name = module if module == "lm_head" else f"model.layers.0.{module}"

    assert read(table).format_of(name).stored_bytes(100, 384) == stored


def group(targets=("Linear",), **weights):
    return {"targets": list(targets), "weights": weights}


@pytest.mark.parametrize(("weights", "stored"), [
    ({"num_bits": 4, "type": "float", "group_size": 16}, 19_200 + 2_400 + 8),
    ({"num_bits": 4, "type": "float", "group_size": 32, "scale_dtype": "torch.uint8"}, 19_200 + 1_200),
    ({"num_bits": 8, "type": "float", "strategy": "tensor"}, 38_400 + 8),
    ({"num_bits": 8, "type": "float", "strategy": "channel"}, 38_400 + 400),
    ({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, 38_400 + 12),
    ({"num_bits": 8, "type": "float", "group_size": 32, "scale_dtype": "torch.uint8"}, 38_400 + 1_200),
    ({"num_bits": 4, "type": "int", "group_size": 32}, 19_200 + 2 * 1_200),
    ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": False}, 19_200 + 2.5 * 300),
    ({"num_bits": 8, "type": "int", "group_size": 128}, 38_400 + 2 * 300),
    ({"num_bits": 8, "type": "int", "strategy": "channel"}, 38_400 + 2 * 100)])
def test_bytes_of_a_matrix_are_those_of_its_group_in_compressed_tensors(weights, stored):
    formats = read({"quant_method": "compressed-tensors", "config_groups": {"group_0": group(**weights)}})

    assert formats.format_of("model.layers.0.mlp.down_proj").stored_bytes(100, 384) == stored
    assert formats.format_of("lm_head") is None
    assert formats.format_of("model.embed_tokens") is None


def test_groups_choose_modules_by_name_expression_and_class():
    int8, int4 = {"num_bits": 8, "type": "int", "group_size": 128}, {"num_bits": 4, "type": "int", "group_size": 128}
    fp8 = {"num_bits": 8, "type": "float"}
    formats = read({"quant_method": "compressed_tensors", "ignore": ["re:.*shared_expert.*"], "config_groups": {
        "group_0": group(**int4), "group_1": group(["re:.*self_attn.*", "lm_head"], **fp8),
        "group_2": group(["model.layers.1.self_attn.o_proj"], **int8), "kv": group(["LlamaAttention"])}})

    def dtype(module):
        found = formats.format_of(module)
        return found and found.weight_dtype
    assert [dtype(f"model.layers.1.{each}") for each in (
        "mlp.experts.3.up_proj", "mlp.shared_experts.up_proj", "self_attn.o_proj", "self_attn.q_proj", "mlp.gate",
        "input_layernorm")] == ["int4", None, "int8", "fp8", None, None]
    assert dtype("model.layers.1.self_attn.qkv_proj") == "fp8"
    assert dtype("lm_head") == "fp8"


FP8 = {"quant_method": "fp8"}


@pytest.mark.parametrize(("table", "left", "kept"), [
    (FP8 | {"modules_to_not_convert": ["model.layers.2"]}, "model.layers.2.mlp.up_proj", "model.layers.21.mlp.up_proj"),
    (FP8 | {"ignored_layers": ["model.layers.0.mlp.up_proj"]},
     "model.layers.0.mlp.up_proj", "model.layers.0.mlp.gate_proj"),
    (FP8 | {"ignored_layers": ["model.layers.0.self_attn.qkv_proj"]},
     "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.o_proj"),
    (FP8 | {"ignored_layers": [f"model.layers.0.self_attn.{each}_proj" for each in "qkv"]},
     "model.layers.0.self_attn.qkv_proj", "model.layers.1.self_attn.qkv_proj"),
    (FP8 | {"modules_to_not_convert": ["model.language_model.layers.0.mlp"]},
     "model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"),
    (FP8 | {"modules_to_not_convert": ["model.layers.0.mlp"]},
     "language_model.model.layers.0.mlp.up_proj", "language_model.model.layers.1.mlp.up_proj"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["model.layers.1*"]},
     "model.layers.10.mlp.up_proj", "model.layers.2.mlp.up_proj"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["model.layers.1.*"]},
     "model.layers.1.mlp.up_proj", "model.layers.10.mlp.up_proj"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["model.layers.*.self_attn"]},
     "model.layers.7.self_attn.q_proj", "model.layers.7.mlp.up_proj"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head"]},
     "model.vision_tower.blocks.0.mlp.fc1", "model.layers.7.mlp.up_proj"),
    ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["shared"]},
     "model.layers.0.mlp.shared_expert.up_proj", "model.layers.0.mlp.experts.0.up_proj"),
    ({"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.up_proj"]]},
     "model.layers.0.mlp.down_proj", "model.layers.0.mlp.up_proj"),
    ({"quant_method": "gptq", "bits": 4, "dynamic": {r"-:.*\.0\..*": {}}},
     "model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"),
    ({"quant_method": "inc", "bits": 4, "extra_config": {"model.layers.0.mlp.up_proj": {"bits": 16}}},
     "model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["self_attn"]},
     "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj"),
    ({"quant_method": "mxfp4"}, "model.layers.0.mlp.up_proj", "model.layers.0.mlp.experts.gate_up_proj")])
def test_lists_leave_modules_out_as_vllm_matches_them(table, left, kept):
    formats = read(table)

    assert formats.format_of(left) is None
    assert formats.format_of(kept) is not None


def test_rules_of_gptq_change_bits_of_modules():
    formats = read({"quant_method": "gptq", "bits": 4, "group_size": 128,
                    "dynamic": {r"+:.*down_proj": {"bits": 8, "group_size": 32}}})

    assert formats.format_of("model.layers.0.mlp.down_proj").stored_bytes(64, 64) == 64 * 64 + 128 * 3
    assert formats.format_of("model.layers.0.mlp.up_proj").weight_dtype == "int4"


def test_mixed_precision_is_read_by_module_by_layer_of_experts_and_by_its_groups():
    rows = {"model.layers.0.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
            "model.layers.1.moe.gate_proj": {"quant_algo": "NVFP4"}, "model.layers.2.mlp.experts.0.w1": {
                "quant_algo": "MXFP8"}, "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
            "lm_head": {"quant_algo": "FP8"}}
    mixed = read({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": rows})

    def named_of(module):
        return named(mixed.format_of(module))
    assert named_of("model.layers.0.mlp.experts.7.down_proj") == "nvfp4"
    assert named_of("model.layers.1.moe.experts.gate_proj") == "nvfp4"
    assert named_of("model.layers.2.mlp.experts.9.w2") == "mxfp8"
    assert named_of("language_model.model.layers.0.self_attn.q_proj") == "fp8"
    assert named_of("model.layers.0.mlp.shared_expert.up_proj") == "bf16"
    assert named_of("lm_head") == "fp8"
    by_groups = read({"producer": {"name": "modelopt"}, "quant_algo": "MIXED_PRECISION", "config_groups": {
        "group_0": group(["model.layers.0.mlp.experts"], num_bits=4, type="float", group_size=16)}})
    assert named(by_groups.format_of("model.layers.0.mlp.experts.5.up_proj")) == "nvfp4"
    assert by_groups.format_of("model.layers.0.self_attn.o_proj") is None


def test_shards_of_one_product_in_several_formats_are_refused():
    formats = read(FP8 | {"ignored_layers": ["model.layers.0.self_attn.q_proj"]})

    with pytest.raises(InputErrors, match=r"qkv_proj is one product in vLLM.*q_proj not quantised, k_proj fp8"):
        formats.format_of("model.layers.0.self_attn.qkv_proj")
    assert formats.uneven(["model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.k_proj"]) == []


def test_table_of_the_top_level_goes_before_the_text_models_and_the_file_beside():
    text, beside = {"quant_method": "gptq"}, {"quantization": {"quant_algo": "FP8"}}

    assert stated_table({"quantization_config": FP8, "text_config": {"quantization_config": text}}, beside) == FP8
    assert stated_table({"quantization_config": None, "text_config": {"quantization_config": text}}, beside) == text
    assert stated_table({"text_config": {"compression_config": text}}, beside) == text
    assert stated_table({"text_config": {}}, beside) == beside
    assert stated_table({}) is None


@pytest.mark.parametrize(("table", "said"), [
    ({"quant_method": "hqq"}, ['quant_method: unknown method "hqq"; valid: awq, bitsandbytes, compressed-tensors']),
    ({"quant_method": "modelopt", "quant_algo": "NVFP5"}, ["quant_algo: expected one of FP8, FP8_PER_CHANNEL"]),
    ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, ["quantized_layers: required key is missing"]),
    ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
        "a.q_proj": {"quant_algo": "INT3"}, "b.q_proj": {"quant_algo": "INT3"}, "c.q_proj": {"quant_algo": "INT2"}}},
     ["quantized_layers.a.q_proj.quant_algo: expected one of", "quantized_layers.c.q_proj.quant_algo: expected one"]),
    ({"quant_method": "compressed-tensors", "ignore": [3], "config_groups": {
        "a": group(num_bits=3), "b": group(["LinearX"], num_bits=4, type="float")}},
     ["ignore: expected a list of module names, found", "config_groups.a.weights.num_bits: expected one of 4, 8 bits",
      "config_groups.b.targets: expected one of Linear"]),
    ({"quant_method": "compressed-tensors", "ignore": ["re:("], "config_groups": {}},
     ['ignore: expected a regular expression, found "("', "config_groups: expected a table of groups"]),
    ({"quant_method": "gptq", "bits": 5, "dynamic": {"+:(": {}}},
     ["bits: expected one of 4, 8 bits, found 5", "dynamic: expected a regular expression"]),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp6", "qscheme": "none"}}},
     ["global_quant_config.weight.dtype: expected one of", "global_quant_config.weight.qscheme: expected one of"])])
def test_all_faults_of_a_table_are_told_by_key_value_and_what_is_allowed(table, said):
    found = faults(table)

    assert len(found) == len(said)
    assert all(fault.startswith(start) for fault, start in zip(found, said, strict=True)), found


def test_bytes_of_blocks_that_do_not_fit_count_whole():
    assert Format(method="fp8", weight_dtype="fp8", rows=128, columns=128, scale_bits=32).stored_bytes(
        129, 129) == 129 * 129 + 4 * 4
