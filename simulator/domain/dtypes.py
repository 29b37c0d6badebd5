"""Number formats of weights, activations and KV cache, by the names that vLLM's arguments use."""
from typing import Literal

WeightDtype = Literal["float32", "bfloat16", "float16", "fp8", "fp4", "int8", "int4"]
DTYPE_BITS = {"float32": 32, "bfloat16": 16, "float16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
UNQUANTIZED_DTYPES = ("float32", "bfloat16", "float16")

# Formats of checkpoints by the names they go by: what `dtype` takes beside the plain ones; scales: model_spec.py
WeightFormat = Literal["float32", "bfloat16", "float16", "fp8", "fp4", "int8", "int4",
                       "fp8_block", "nvfp4", "mxfp4", "awq", "gptq", "int4_wo"]

# vLLM's kv_cache_dtype values and the format each stores; "auto": as the checkpoint declares, else its dtype
KvCacheDtype = Literal["auto", "float32", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8", "fp4", "int4"]
KV_CACHE_FORMATS = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}


def dtype_bytes(dtype: str) -> float:
    """Return the bytes of one element: 2.0 for bfloat16, 0.5 for fp4."""
    return DTYPE_BITS[dtype] / 8
