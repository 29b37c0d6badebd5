"""Reading of a model's config.json, with a format for each of many modules, down to its memory plan."""
import json
import time

import pytest

from simulator.config.huggingface.reader import read_config
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights

pytestmark = pytest.mark.benchmark(group="models", timer=time.process_time)
LAYERS, EXPERTS = 57, 128


@pytest.fixture
def mixed(tmp_path):
    """Return a file of 2.9 MB: mixed precision, a row for each of 22,116 modules, as MiniMax-M3-NVFP4 has it."""
    rows = {f"model.layers.{layer}.self_attn.{each}_proj": {"quant_algo": "FP8"}
            for layer in range(LAYERS) for each in "qkvo"}
    rows |= {f"model.layers.{layer}.mlp.experts.{expert}.{each}_proj": {"quant_algo": "NVFP4", "group_size": 16}
             for layer in range(LAYERS) for expert in range(EXPERTS) for each in ("gate", "up", "down")}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": LAYERS, "hidden_size": 4096, "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 12288, "vocab_size": 151936,
        "max_position_embeddings": 40960, "num_experts": EXPERTS, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1536, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": rows}},
        indent=4))
    return path


def test_mixed_precision_of_22k_modules(mixed, benchmark, report):
    def planned():
        model = read_config(mixed)
        return rank_weights(Deployment(model=model, accelerator=load_accelerator("b200-sxm-180gb"),
                                       parallelism=Parallelism(tensor_parallel=2))).num_bytes

    assert benchmark.pedantic(planned, rounds=15, warmup_rounds=1) > 0
    report.add("config.json with 22k rows, to weights of a rank", f"{benchmark.stats['min'] * 1e3:.0f} ms", "<= 50 ms")
