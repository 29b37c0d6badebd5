"""The work from a config.json down to the weights of a rank: calls of functions, since times differ with the load."""
import json
import sys

import pytest

from simulator.config.huggingface.formats import ModuleFormats
from simulator.config.huggingface.reader import read_config
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights

B200 = load_accelerator("b200-sxm-180gb")
MATRICES = 7                            # of a layer: products of attention and of experts


def write(tmp_path, layers, experts, table):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": layers, "hidden_size": 4096, "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 12288, "vocab_size": 151936,
        "max_position_embeddings": 40960, "num_experts": experts, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1536, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "quantization_config": table}))
    return path


def mixed(layers, experts):
    """Return a table with a row for each module, as MiniMax-M3-NVFP4 has it."""
    rows = {f"model.layers.{layer}.self_attn.{each}_proj": {"quant_algo": "FP8"}
            for layer in range(layers) for each in "qkvo"}
    rows |= {f"model.layers.{layer}.mlp.experts.{expert}.{each}_proj": {"quant_algo": "NVFP4", "group_size": 16}
             for layer in range(layers) for expert in range(experts) for each in ("gate", "up", "down")}
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": rows}


def listed(layers, plain=()):
    """Return fp8 blocks with a list of modules in 16 bit by layer, as GLM-5-FP8 has it."""
    names = [f"model.layers.{layer}.{each}" for layer in range(layers) for each in (
        "mlp.gate", "input_layernorm", *(["self_attn.o_proj"] if layer in plain else []))]
    return {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", *names]}


def planned(path):
    return rank_weights(Deployment(model=read_config(path), accelerator=B200,
                                   parallelism=Parallelism(tensor_parallel=2))).num_bytes


def calls_of(work, path):
    """Return the calls of functions, Python's and C's, of a piece of work that was done once before."""
    work(path)
    count = 0

    def tally(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tally)
    try:
        work(path)
    finally:
        sys.setprofile(None)
    return count


def test_a_row_of_an_expert_takes_few_calls(tmp_path):
    """MiniMax-M3-NVFP4 has 22,422 rows."""
    few, many = (calls_of(planned, write(tmp_path, 4, experts, mixed(4, experts))) for experts in (8, 136))

    assert many - few <= 4 * 4 * 128 * 3


@pytest.mark.parametrize("table_of", [lambda layers: mixed(layers, 8), listed])
def test_equal_layers_are_read_once(tmp_path, table_of, monkeypatch):
    asked = []
    first_named = ModuleFormats.first_named
    monkeypatch.setattr(ModuleFormats, "first_named",
                        lambda self, names: asked.append(names) or first_named(self, names))

    planned(write(tmp_path, 60, 8, table_of(60)))

    assert len(asked) < 4 * MATRICES


def test_a_layer_that_differs_is_read_by_itself(tmp_path):
    some, none = (planned(write(tmp_path, 60, 8, listed(60, plain))) for plain in ((7, 8, 31), ()))

    # half of an output product of each of three layers, at 2 bytes for 1 and the scales of its blocks
    weights = 4096 * 32 * 128 // 2
    assert some - none == 3 * (weights - 4 * weights // 128 ** 2)
