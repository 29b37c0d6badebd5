"""NVIDIA's ModelOpt: one algorithm for all modules, or MIXED_PRECISION with one for each.

Source: vLLM 0.33, vllm/model_executor/layers/quantization/modelopt.py (LINEAR_ALGOS, resolve); of the other
algorithms ModelOpt's own export, modelopt/torch/export/quant_utils.py.
"""
from collections.abc import Callable

from simulator.config.huggingface.groups import group_rules
from simulator.config.huggingface.module_names import Rows, without_equal_experts
from simulator.config.huggingface.rules import Reading, Rule, rules_of
from simulator.config.words import show
from simulator.domain.stored_format import (
    FP16_BITS,
    Format,
    by_fp8,
    in_blocks,
    in_groups,
    microscaled,
    nvfp4,
    nvfp4_weights,
    per_row,
    per_tensor,
)

METHOD = "modelopt"
# Algorithm -> (weights that share a scale unless the table says, the format with this many)
ALGORITHMS: dict[str, tuple[int, Callable[[int], Format]]] = {
    "FP8": (0, lambda group: per_tensor(METHOD)),
    "FP8_PER_CHANNEL_PER_TOKEN": (0, lambda group: per_row(METHOD)),
    "FP8_PB_WO": (128, lambda group: in_blocks(METHOD, group, group)),
    "FP8_BLOCK_SCALES": (128, lambda group: in_blocks(METHOD, group, group)),
    "NVFP4": (16, lambda group: nvfp4(METHOD, group)),
    "NVFP4_AWQ": (16, lambda group: nvfp4(METHOD, group)),
    "W4A16_NVFP4": (16, lambda group: nvfp4_weights(METHOD, group)),
    "W4A8_NVFP4_FP8": (16, lambda group: by_fp8(nvfp4(METHOD, group))),
    "MXFP4": (32, lambda group: microscaled(METHOD, "fp4")),
    "W4A8_MXFP4_FP8": (32, lambda group: by_fp8(microscaled(METHOD, "fp4"))),
    "MXFP8": (32, lambda group: microscaled(METHOD, "fp8")),
    "W4A16_AWQ": (128, lambda group: in_groups(METHOD, "int4", group, FP16_BITS)),
    "W4A8_AWQ": (128, lambda group: by_fp8(in_groups(METHOD, "int4", group, FP16_BITS))),
    "INT4_AWQ": (128, lambda group: in_groups(METHOD, "int4", group, FP16_BITS)),
    "W8A16": (0, lambda group: per_row(METHOD, "int8")),
    "W8A8_SQ_PER_CHANNEL": (0, lambda group: per_row(METHOD, "int8")),
}
MIXED = "MIXED_PRECISION"


def modelopt(reading: Reading) -> list[Rule]:
    """Return the rules of `quant_algo`, and of `quantized_layers` where it is mixed."""
    algorithm = reading.get("quant_algo")
    rules = reading.left_out()
    if isinstance(algorithm, str) and algorithm.upper() == MIXED:
        return rules + _mixed(reading)
    return rules + rules_of(_format(reading, reading.table, "", {MIXED: None}))


def _mixed(reading: Reading) -> list[Rule]:
    layers = reading.get("quantized_layers")
    if layers is None and reading.get("config_groups"):
        return group_rules(reading)
    if not isinstance(layers, dict) or set(map(type, layers.values())) != {dict}:
        what = "required key is missing" if layers is None else f"expected a table of modules, found {show(layers)}"
        reading.fault("quantized_layers", what)
        return []
    known: dict[tuple, Format | None] = {}
    rows = {}
    for name, row in without_equal_experts(layers).items():
        kind = str(row.get("quant_algo")), str(row.get("group_size"))
        if kind not in known:
            known[kind] = _format(reading, row, f"quantized_layers.{name}.", {})
        if known[kind] is not None:
            rows[name] = known[kind]
    return [Rule(None, Rows(rows), ())]


def _format(reading: Reading, table: dict, where: str, beside: dict) -> Format | None:
    name = table.get("quant_algo")
    found = reading.one_of(f"{where}quant_algo", name.upper() if isinstance(name, str) else name, ALGORITHMS | beside)
    if found is None:
        return None
    default, make = found
    group = reading.number("group_size", default, table, where)
    if group is not None and default and group < 1:
        reading.fault(f"{where}group_size", f"expected an integer >= 1, found {group}")
        return None
    return make(group) if group is not None else None
