"""Reading of models down to the weights of a rank: all of models/, all config.json of a package, one with many rows."""
import json
import shutil
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from simulator.config.huggingface.reader import read_config
from simulator.domain.deployment import Deployment
from simulator.domain.facts import load_accelerator, load_model, names
from simulator.domain.parallelism import Parallelism
from simulator.domain.rank_weights import rank_weights

pytestmark = pytest.mark.benchmark(group="models", timer=time.process_time)
LAYERS, EXPERTS = 57, 128
PACKAGE = find_spec("aiconfigurator_core")         # its folder model_configs; None: not installed


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


def planned(model):
    """Return the bytes of weights on a rank of one."""
    return rank_weights(Deployment(model=model, accelerator=load_accelerator("b200-sxm-180gb"),
                                   parallelism=Parallelism())).num_bytes


def slowest_of(read, items):
    """Return the least CPU time of three of the item that takes longest, s, and the item."""
    found = {}
    for item in items:
        for _ in range(3):
            begin = time.process_time()
            assert planned(read(item)) > 0
            found[item] = min(found.get(item, 1e9), time.process_time() - begin)
    return max((taken, item) for item, taken in found.items())


def test_all_models(report):
    taken, name = slowest_of(load_model, names("model"))
    report.add(f"models/, to weights of a rank: {name}, the slowest", f"{taken * 1e3:.0f} ms", "<= 50 ms")


@pytest.mark.skipif(PACKAGE is None, reason="needs the package aiconfigurator-core")
def test_all_configs_of_the_package(tmp_path, report):
    folders = []
    for file in sorted(Path(PACKAGE.submodule_search_locations[0], "model_configs").glob("*_config.json")):
        name, _, _ = file.name.removesuffix("config.json").rpartition("_hf_quant_")
        folder = tmp_path / (name or file.name.removesuffix("_config.json"))
        folder.mkdir(exist_ok=True)
        shutil.copy(file, folder / ("hf_quant_config.json" if name else "config.json"))
        folders.append(folder)
    taken = [folder for folder in dict.fromkeys(folders) if "Step-3.7" not in folder.name]
    time_s, folder = slowest_of(read_config, taken)
    report.add(f"{len(taken)} config.json, to weights of a rank: {folder.name}, the slowest", f"{time_s * 1e3:.0f} ms",
               "<= 50 ms")


def test_mixed_precision_of_22k_modules(mixed, benchmark, report):
    assert benchmark.pedantic(lambda: planned(read_config(mixed)), rounds=15, warmup_rounds=1) > 0
    report.add("config.json with 22k rows, to weights of a rank", f"{benchmark.stats['min'] * 1e3:.0f} ms", "<= 50 ms")
