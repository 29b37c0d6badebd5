"""Methods of quantisation with one format: the rules by which the table of each gives modules a format.

Scales are those of the formats: https://huggingface.co/docs/transformers/quantization and vLLM's
model_executor/layers/quantization, one module a method.
"""
from collections.abc import Callable, Iterator

from simulator.config.huggingface.groups import compressed_tensors
from simulator.config.huggingface.modelopt import modelopt
from simulator.config.huggingface.module_names import Patterns
from simulator.config.huggingface.rules import Reading, Rule, rules_of
from simulator.config.words import show
from simulator.domain.stored_format import (
    FP16_BITS,
    FP32_BITS,
    Format,
    in_blocks,
    in_groups,
    microscaled,
    nvfp4,
    per_row,
    per_tensor,
)

INT_DTYPES = {4: "int4", 8: "int8"}


def _fp8(reading: Reading) -> list[Rule]:
    # DeepSeek-V4 keeps experts in MXFP4 beside fp8 blocks; their scales are e8m0 then (vllm/models/deepseek_v4).
    experts = reading.model.get("expert_dtype")
    if experts is None and reading.model.get("model_type") == "deepseek_v4":
        experts = "fp4"
    if experts not in (None, "fp4", "fp8"):
        reading.model.fault("expert_dtype", f"expected one of fp4, fp8, found {show(experts)}")
    block = reading.block("weight_block_size", reading.get("weight_block_size"))
    scale = 8 if experts == "fp4" else FP32_BITS
    rules = reading.left_out()
    if experts == "fp4" or reading.get("store_dtype") == "mxfp4":
        is_nvfp4 = str(reading.get("moe_quant_algo", "")).upper() == "NVFP4"
        rules += rules_of(nvfp4() if is_nvfp4 else microscaled("mxfp4", "fp4"), ("expert",))
    return rules + rules_of(in_blocks("fp8", *block, scale) if block else per_tensor("fp8"))


def _packed(reading: Reading, method: str, table: dict, default: tuple[int | None, int] = (None, 128),
            where: str = "") -> Format | None:
    """Return the format of GPTQ, AWQ and AutoRound.

    A float16 scale and a zero point as wide as a weight for each group; -1 groups whole rows.
    """
    bits = reading.number("bits|w_bit", default[0], table, where)
    group = reading.number("group_size|q_group_size", default[1], table, where)
    dtype = reading.one_of(f"{where}bits", bits, INT_DTYPES, " bits") if bits is not None else None
    if dtype is None or group is None:
        return None
    return in_groups(method, dtype, max(group, 0), FP16_BITS + bits)


def _awq(reading: Reading) -> list[Rule]:
    form = _packed(reading, "awq", reading.table)
    return reading.left_out(anywhere=True) + _head(reading, form) + rules_of(form)


def _gptq(reading: Reading) -> list[Rule]:
    form = _packed(reading, "gptq", reading.table)
    return reading.left_out() + _dynamic(reading, form) + _head(reading, form) + _in_blocks(reading, form)


def _head(reading: Reading, form: Format | None) -> list[Rule]:
    return rules_of(form, ("head",)) if reading.get("lm_head") is True else []


def _in_blocks(reading: Reading, form: Format | None) -> list[Rule]:
    blocks = reading.get("modules_in_block_to_quantize")
    names = list(_flat(blocks)) if isinstance(blocks, list) else blocks
    if form is None or not names:
        return rules_of(form)
    patterns = reading.patterns("modules_in_block_to_quantize", names, anywhere=True)
    return [Rule(form, patterns, ("linear",)), *rules_of(form, ("expert",))]


def _flat(names: list) -> Iterator:
    for each in names:
        yield from _flat(each) if isinstance(each, list) else [each]


def _dynamic(reading: Reading, form: Format | None) -> list[Rule]:
    """Return the rules of GPTQModel's `dynamic`: "-:expression" leaves modules out, "+:expression" changes keys."""
    table = reading.get("dynamic", {})
    if not isinstance(table, dict):
        reading.fault("dynamic", f"expected a table, found {show(table)}")
        return []
    rules = []
    for name, changes in table.items():
        text = name.removeprefix("-:").removeprefix("+:")
        if not reading.is_expression("dynamic", text):
            continue
        own = None if name.startswith("-:") else _changed(reading, "gptq", f"dynamic.{name}.", changes)
        if own is not None or name.startswith("-:") or form is None:
            rules.append(Rule(own, Patterns([f"re:{text}"])))
    return rules


def _changed(reading: Reading, method: str, where: str, changes) -> Format | None:
    if not isinstance(changes, dict):
        reading.fault(where.rstrip("."), f"expected a table, found {show(changes)}")
        return None
    bits, group = reading.get("bits"), reading.get("group_size", 128)
    is_number = type(bits) is int, type(group) is int
    return _packed(reading, method, changes, (bits if is_number[0] else 4, group if is_number[1] else 128), where)


def _auto_round(reading: Reading) -> list[Rule]:
    # Intel's: weights as GPTQ or AWQ pack them; `extra_config` has rows of modules, 16 bits leave one out.
    reading.one_of("data_type", reading.get("data_type", "int"), {"int": True})
    form = _packed(reading, "inc", reading.table)
    extra, rules = reading.get("extra_config", {}), []
    for name, changes in extra.items() if isinstance(extra, dict) else ():
        plain = isinstance(changes, dict) and type(changes.get("bits")) is int and changes["bits"] >= 16
        own = None if plain else _changed(reading, "inc", f"extra_config.{name}.", changes)
        is_text = any(mark in name for mark in "*\\(^$[")
        if not is_text or reading.is_expression("extra_config", name):
            rules.append(Rule(own, Patterns([f"re:{name}" if is_text else name]), ()))
    blocks = reading.get("block_name_to_quantize|to_quant_block_names", [])
    blocks = blocks.split(",") if isinstance(blocks, str) else list(_flat(blocks)) if isinstance(blocks, list) else []
    if not blocks or form is None:
        return rules + rules_of(form)
    return [*rules, Rule(form, reading.patterns("block_name_to_quantize", blocks))]


def _mxfp4(reading: Reading) -> list[Rule]:
    return rules_of(microscaled("mxfp4", "fp4"), ("expert",))      # vLLM multiplies no other matrix so


def _bitsandbytes(reading: Reading) -> list[Rule]:
    # A float32 maximum per 64 weights in 4 bits, 8 bits of it if quantised in turn; per row in 8 bits.
    if reading.get("load_in_4bit|_load_in_4bit") is True:
        scale = 8 if reading.get("bnb_4bit_use_double_quant") is True else FP32_BITS
        return reading.left_out() + rules_of(in_groups("bitsandbytes", "int4", 64, scale))
    if reading.get("load_in_8bit|_load_in_8bit") is True:
        return reading.left_out() + rules_of(per_row("bitsandbytes", "int8"))
    reading.fault("", "expected load_in_4bit or load_in_8bit to be true")
    return []


QUARK_DTYPES = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "int8": "int8", "uint8": "int8", "int4": "int4", "uint4": "int4",
                "fp4": "fp4"}


def _quark(reading: Reading) -> list[Rule]:
    """Return the rules of AMD's Quark: a format for all, others by glob, left out what `exclude` lists."""
    rules = reading.left_out()
    layers = reading.get("layer_quant_config", {})
    for name, table in layers.items() if isinstance(layers, dict) else ():
        own = _quark_format(reading, f"layer_quant_config.{name}", table)
        rules += [Rule(own, Patterns([name]))] if own is not None else []
    return rules + rules_of(_quark_format(reading, "global_quant_config", reading.get("global_quant_config")))


def _quark_format(reading: Reading, where: str, table) -> Format | None:
    weight = table.get("weight") if isinstance(table, dict) else None
    if isinstance(weight, list) and weight and isinstance(weight[0], dict) and weight[0].get("dtype") == "fp4":
        return nvfp4("quark")           # scales of groups, and one of the matrix
    if not isinstance(weight, dict):
        reading.fault(f"{where}.weight", f"expected a table, found {show(weight)}")
        return None
    dtype = reading.one_of(f"{where}.weight.dtype", weight.get("dtype"), QUARK_DTYPES)
    scheme = reading.one_of(f"{where}.weight.qscheme", weight.get("qscheme"), {name: name for name in (
        "per_tensor", "per_channel", "per_group", "per_block")})
    if dtype is None or scheme is None:
        return None
    if scheme == "per_tensor":
        return per_tensor("quark", dtype)
    if scheme == "per_channel":
        return per_row("quark", dtype)
    if scheme == "per_block":
        block = reading.block(f"{where}.weight.block_size", weight.get("block_size") or [128, 128])
        return in_blocks("quark", *block) if block else None
    group = reading.number("group_size", None, weight, f"{where}.weight.")
    if group is None:
        return None
    is_shared_exponent = weight.get("scale_format") == "e8m0" or dtype == "fp4"
    zero = 0 if weight.get("symmetric", True) else 4
    return in_groups("quark", dtype, max(group, 0), 8 if is_shared_exponent else FP16_BITS + zero)


METHODS: dict[str, Callable[[Reading], list[Rule]]] = {
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": compressed_tensors,
    "experts_int8": lambda reading: reading.left_out() + rules_of(per_row("experts_int8", "int8"), ("expert",)),
    "fbgemm_fp8": lambda reading: reading.left_out() + rules_of(per_row("fbgemm_fp8")),
    "fp8": _fp8,
    "gptq": _gptq,
    "inc": _auto_round,
    "modelopt": modelopt,
    "mxfp4": _mxfp4,
    "mxfp8": lambda reading: reading.left_out() + rules_of(microscaled("mxfp8", "fp8")),
    "quark": _quark,
    "w8a8_fp8": lambda reading: reading.left_out() + rules_of(per_row("w8a8_fp8")),
    "w8a8_int8": lambda reading: reading.left_out() + rules_of(per_row("w8a8_int8", "int8")),
}
