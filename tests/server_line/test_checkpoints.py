"""Facts that servers take from a checkpoint's folder: the method by vLLM's name, and the KV cache that it declares."""
import json

import pytest

from simulator.server_line.facts.checkpoints import checkpoint_of
from support.published_configs import CONFIGS

STATIC_FP8 = {"num_bits": 8, "type": "float", "dynamic": False}
GROUPS = {"config_groups": {"a": {"weights": {"num_bits": 8, "type": "float"}}}}
MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
    f"model.layers.{i}.mlp.{each}_proj": {"quant_algo": "FP8"} for i in range(32) for each in ("gate", "up", "down")}}


@pytest.mark.parametrize(("stated", "beside", "method", "declared"), [
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": STATIC_FP8}, None, "modelopt_fp4", "FP8"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": STATIC_FP8 | {"num_bits": 4}}, None,
     "modelopt_fp4", "NVFP4"),
    ({"producer": {"name": "modelopt"}, "quant_algo": "FP8", "kv_cache_scheme": "FP8"}, None, "modelopt", "FP8"),
    (None, {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}},
     "modelopt", "FP8"),
    ({"quant_method": "fp8"}, {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, "fp8", None),
    ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, None, "modelopt_mxfp8", None),
    (MIXED | {"kv_cache_quant_algo": "FP8"}, None, "modelopt_mixed", "FP8"),
    (GROUPS | {"quant_method": "compressed_tensors", "kv_cache_scheme": STATIC_FP8}, None, "compressed-tensors", None),
    (None, None, None, None)])
def test_method_and_declared_kv_cache_of_a_folder(stated, beside, method, declared, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(
        CONFIGS["llama-3.1-8b"] | ({"quantization_config": stated} if stated else {})))
    if beside:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    found = checkpoint_of("own", str(tmp_path))

    assert (found.method, found.kv_algorithm) == (method, declared)
