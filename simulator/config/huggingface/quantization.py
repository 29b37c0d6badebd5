"""Read quantization_config of a Hugging Face config.json: how a checkpoint stores its weight matrices.

Scales are those of the formats: https://huggingface.co/docs/transformers/quantization and vLLM's
model_executor/layers/quantization, one module a method.
"""
from collections.abc import Callable

from msgspec.structs import replace

from simulator.config.huggingface.keys import Keys
from simulator.config.huggingface.left_out import left_out
from simulator.config.words import show
from simulator.domain.model_spec import Quantization, Unquantized
from simulator.errors import did_you_mean

WHERE = "quantization_config"
INT_DTYPES = {4: "int4", 8: "int8"}
FLOAT_DTYPES = {4: "fp4", 8: "fp8"}
FP4_BLOCK = {"mxfp4": (32, 8), "nvfp4": (16, 8)}    # weights a scale, bits of a scale
FP16_BITS, FP32_BITS = 16, 32


def read_quantization(keys: Keys) -> Quantization | None:
    """Return how weights are quantised, or None; faults are left in `keys`."""
    table = keys.get(WHERE)
    if table is None:
        return None
    if not isinstance(table, dict):
        keys.fault(WHERE, f"expected a table, found {show(table)}")
        return None
    method = table.get("quant_method") or _producer(table)
    if not isinstance(method, str) or method not in METHODS:
        hint = did_you_mean(method, METHODS) if isinstance(method, str) else f"; valid: {', '.join(METHODS)}"
        keys.fault(f"{WHERE}.quant_method", f"unknown method {show(method)}{hint}")
        return None
    read = METHODS[method](keys, _unnested(table), method)
    if read is None:
        return None
    left, has_experts = left_out(keys, _unnested(table)), _has_experts(keys)
    if not has_experts:
        left = {part: layers for part, layers in left.items() if "experts" not in part}
    scope = "experts" if has_experts and left.get("attention") == "all" else read.scope
    if scope == "experts":          # other parts are not quantised
        left = {part: layers for part, layers in left.items() if part == "experts"}
    return replace(read, scope=scope, kv_cache_dtype=_kv_cache_dtype(_unnested(table), method),
                   unquantized=Unquantized(**left) if left else None)


def _producer(table: dict) -> str | None:
    """Return "modelopt" for a table without a method if its producer is ModelOpt, as in vLLM; else None."""
    producer = table.get("producer")
    return "modelopt" if isinstance(producer, dict) and producer.get("name") == "modelopt" else None


def _unnested(table: dict) -> dict:
    # hf_quant_config.json of ModelOpt keeps its keys one table deeper than config.json does.
    inner = table.get("quantization")
    return table | inner if isinstance(inner, dict) else table


def _has_experts(keys: Keys) -> bool:
    return any(keys.get(name) for name in ("num_experts", "n_routed_experts", "num_local_experts"))


def _kv_cache_dtype(table: dict, method: str) -> str | None:
    """Return the format of the KV cache that the checkpoint declares; None: the model's dtype.

    vLLM (vllm/utils/torch_utils.py, get_kv_cache_quant_algo_string; vllm/model_executor/layers/attention/attention.py;
    first as of vllm-project/vllm at 959009b402c3) takes ModelOpt's fp8, later revisions its nvfp4 too, and fp8 for any
    kv_cache_scheme of compressed-tensors; with other formats of ModelOpt the cache keeps the model's dtype.
    """
    scheme = table.get("kv_cache_scheme") or (method == "modelopt" and table.get("kv_cache_quant_algo"))
    if method == "compressed-tensors":
        return "fp8" if scheme else None
    if method != "modelopt" or not scheme:
        return None
    if isinstance(scheme, dict):
        if scheme.get("type") != "float":
            return None
        return {8: "fp8" if scheme.get("dynamic") is False else None, 4: "fp4"}.get(scheme.get("num_bits"))
    return {"fp8": "fp8", "nvfp4": "fp4"}.get(str(scheme).lower())


def _number(keys: Keys, table: dict, names: str, default: int | None, where: str = WHERE) -> int | None:
    inner = Keys(table, keys.file)
    value = inner.get(names, default)
    if type(value) is int and -1 <= value <= 2**20:
        return value
    if value is not None or default is None:
        name = names.split("|")[0]
        what = "required key is missing" if value is None else f"expected an integer, found {show(value)}"
        keys.fault(f"{where}.{name}", what)
    return None


def _dtype(keys: Keys, bits: int | None, dtypes: dict, where: str) -> str | None:
    if bits is not None and bits not in dtypes:
        keys.fault(where, f"expected one of {', '.join(map(str, dtypes))} bits, found {bits}")
    return dtypes.get(bits)


def _block_size(keys: Keys, block, where: str) -> int:
    if block is None:
        return 0
    if not isinstance(block, list) or len(block) != 2 or not all(type(n) is int and 0 < n <= 2**20 for n in block):
        keys.fault(where, f"expected two positive integers, found {show(block)}")
        return 0
    return block[0] * block[1]


def _fp8(keys: Keys, table: dict, method: str) -> Quantization:
    # A float32 scale per block; scales per tensor or per channel are too few to count.
    group = _block_size(keys, table.get("weight_block_size"), f"{WHERE}.weight_block_size")
    return Quantization(method=method, weight_dtype="fp8", group_size=group, scale_bits=FP32_BITS if group else 0)


def _packed_integers(keys: Keys, table: dict, method: str) -> Quantization | None:
    # GPTQ and AWQ: a float16 scale and a zero point as wide as a weight for each group; -1 groups a whole column.
    bits = _number(keys, table, "bits|w_bit", None)
    group = _number(keys, table, "group_size|q_group_size", 128)
    dtype = _dtype(keys, bits, INT_DTYPES, f"{WHERE}.bits")
    if dtype is None or group is None:
        return None
    if group <= 0:
        return Quantization(method=method, weight_dtype=dtype)
    return Quantization(method=method, weight_dtype=dtype, group_size=group, scale_bits=FP16_BITS + bits)


def _mxfp4(keys: Keys, table: dict, method: str) -> Quantization:
    group, scale = FP4_BLOCK["mxfp4"]
    return Quantization(method=method, weight_dtype="fp4", scope="experts", group_size=group, scale_bits=scale)


def _bitsandbytes(keys: Keys, table: dict, method: str) -> Quantization | None:
    # A float32 maximum per 64 weights in 4 bits, or per row in 8.
    if table.get("load_in_4bit", table.get("_load_in_4bit")) is True:
        return Quantization(method=method, weight_dtype="int4", group_size=64, scale_bits=FP32_BITS)
    if table.get("load_in_8bit", table.get("_load_in_8bit")) is True:
        return Quantization(method=method, weight_dtype="int8")
    keys.fault(WHERE, "expected load_in_4bit or load_in_8bit to be true")
    return None


def _compressed_tensors(keys: Keys, table: dict, method: str) -> Quantization | None:
    groups = table.get("config_groups")
    where = f"{WHERE}.config_groups"
    if not isinstance(groups, dict) or not groups:
        keys.fault(where, f"expected a table of groups, found {show(groups)}")
        return None
    found = {_weights_of_group(keys, group, f"{where}.{name}", method) for name, group in groups.items()}
    if len(found) > 1 and None not in found:
        keys.fault(where, "groups with different weight formats are not supported")
    return found.pop()


def _weights_of_group(keys: Keys, group, where: str, method: str) -> Quantization | None:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        keys.fault(f"{where}.weights", f"expected a table, found {show(weights)}")
        return None
    bits = _number(keys, weights, "num_bits", None, f"{where}.weights")
    is_float = weights.get("type") == "float"
    dtype = _dtype(keys, bits, FLOAT_DTYPES if is_float else INT_DTYPES, f"{where}.weights.num_bits")
    size = _number(keys, weights, "group_size", 0, f"{where}.weights")
    block = _block_size(keys, weights.get("block_structure"), f"{where}.weights.block_structure")
    if dtype is None or size is None:
        return None
    group_size = max(size, 0) or block
    scale = {"fp4": FP4_BLOCK["nvfp4"][1], "fp8": FP32_BITS}.get(dtype, FP16_BITS)
    return Quantization(method=method, weight_dtype=dtype, group_size=group_size, scale_bits=scale if group_size else 0)


def _modelopt(keys: Keys, table: dict, method: str) -> Quantization | None:
    algorithm = table.get("quant_algo")
    if algorithm == "FP8":
        return Quantization(method=method, weight_dtype="fp8")
    if algorithm == "NVFP4":
        group, scale = FP4_BLOCK["nvfp4"]
        return Quantization(method=method, weight_dtype="fp4", group_size=group, scale_bits=scale)
    keys.fault(f"{WHERE}.quant_algo", f"expected FP8 or NVFP4, found {show(algorithm)}")
    return None


METHODS: dict[str, Callable[[Keys, dict, str], Quantization | None]] = {
    "awq": _packed_integers,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fbgemm_fp8": _fp8,
    "fp8": _fp8,
    "gptq": _packed_integers,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}
