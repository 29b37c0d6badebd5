"""[model] name is a file of models/, a repository on the hub or a path; formats of weights go by name."""
import pytest

import simulator
from simulator.errors import InputErrors

ENGINE = """
hardware = {name = "h100-sxm-80gb"}
topology = {tensor_parallel = 2}
latency = {backend = "roofline"}
workload = {type = "trace", path = "trace.csv"}
"""


def run(folder, model: str):
    (folder / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,2000,10\n")
    file = folder / "experiment.toml"
    file.write_text(f"model = {{{model}}}\n{ENGINE}")
    return simulator.run(file)


def faults(folder, model: str) -> list[str]:
    with pytest.raises(InputErrors) as caught:
        run(folder, model)
    return [fault.replace(f"{folder}/", "") for fault in caught.value.faults]


def test_model_is_found_by_its_repository_and_auto_tells_of_the_declared_cache(tmp_path):
    by_repository = run(tmp_path, 'name = "nvidia/Llama-3.1-70B-Instruct-FP8"')
    stated = run(tmp_path, 'name = "llama-3.1-70b-fp8", kv_cache_dtype = "bfloat16"')
    note = ('roofline: llama-3.1-70b-fp8 declares a KV cache in fp8: '
            'kv_cache_dtype = "auto" stores it so, as vLLM does')

    assert note in by_repository.summary["diagnosis"]
    assert note not in stated.summary["diagnosis"]


def test_unknown_repository_is_answered_with_the_nearest(tmp_path):
    assert faults(tmp_path, 'name = "Qwen/Qwen3-32B-FP9"') == [
        'experiment.toml: model.name: no model "Qwen/Qwen3-32B-FP9" in models/; did you mean Qwen/Qwen3-32B-FP8?']


def test_format_of_experts_is_refused_for_a_model_without_any(tmp_path):
    assert faults(tmp_path, 'name = "llama-3.1-8b", dtype = "mxfp4"') == [
        "experiment.toml: model.dtype: mxfp4 is a format of routed experts, llama-3.1-8b has none; for weights of 4 "
        "bits: nvfp4, awq, gptq, int4_wo"]


def test_file_beside_the_experiment_comes_before_a_repository(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/model.toml").write_text("num_layers = 0")

    assert "num_layers" in faults(tmp_path, 'name = "mine/model.toml"')[0]
