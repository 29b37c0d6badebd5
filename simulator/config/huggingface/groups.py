"""compressed-tensors: formats by groups of modules, which names, expressions or classes choose.

Source: vLLM 0.33, vllm/model_executor/layers/quantization/compressed_tensors: compressed_tensors.py (groups of
attention alone are skipped, "Linear" has routed experts too), utils.py (names and expressions go before classes);
tensors of the formats: https://github.com/vllm-project/compressed-tensors.
"""
from simulator.config.huggingface.module_names import Rows
from simulator.config.huggingface.rules import MATRICES, Reading, Rule
from simulator.config.words import show
from simulator.domain.stored_format import (
    FP16_BITS,
    FP32_BITS,
    Format,
    in_blocks,
    in_groups,
    microscaled,
    nvfp4,
    nvfp4_weights,
    per_row,
    per_tensor,
)

METHOD = "compressed-tensors"
CLASSES = {"Linear": MATRICES, "RoutedExperts": ("expert",), "FusedMoE": ("expert",), "ParallelLMHead": ("head",),
           "VocabParallelEmbedding": ("embedding",), "Embedding": ("embedding",)}
FLOATS, INTEGERS = {4: "fp4", 8: "fp8"}, {4: "int4", 8: "int8"}


def compressed_tensors(reading: Reading) -> list[Rule]:
    """Return the rules of `config_groups` and `ignore`."""
    return reading.left_out() + group_rules(reading)


def group_rules(reading: Reading) -> list[Rule]:
    """Return the rules of `config_groups`."""
    groups = reading.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        reading.fault("config_groups", f"expected a table of groups, found {show(groups)}")
        return []
    rows: dict[str, Format] = {}
    by_text, by_class = [], []
    for name, group in groups.items():
        where = f"config_groups.{name}"
        targets = group.get("targets", ["Linear"]) if isinstance(group, dict) else ["Linear"]
        if not isinstance(targets, list) or not all(isinstance(each, str) for each in targets):
            reading.fault(f"{where}.targets", f"expected a list of texts, found {show(targets)}")
            continue
        targets = [each for each in targets if not each.endswith("Attention")]      # of the KV cache
        form = _format(reading, where, group) if targets else None
        if form is None:
            continue
        named = [each for each in targets if not each.startswith("re:") and not each[:1].isupper()]
        texts = [each for each in targets if each.startswith("re:")]
        rows |= dict.fromkeys(named, form)
        by_text += [Rule(form, reading.patterns(f"{where}.targets", texts), (*MATRICES, "head"))] if texts else []
        kinds = [reading.one_of(f"{where}.targets", each, CLASSES) for each in targets if each[:1].isupper()]
        by_class += [Rule(form, None, each) for each in kinds if each]
    by_class.sort(key=lambda rule: len(rule.kinds))         # a class of experts goes before "Linear"
    return [*([Rule(None, Rows(rows), ())] if rows else []), *by_text, *by_class]


def _format(reading: Reading, where: str, group) -> Format | None:
    weights = group.get("weights") if isinstance(group, dict) else None
    where = f"{where}.weights"
    if not isinstance(weights, dict):
        reading.fault(where, f"expected a table, found {show(weights)}")
        return None
    is_float = weights.get("type", "int") == "float"
    bits = reading.number("num_bits", None, weights, f"{where}.")
    dtype = None if bits is None else reading.one_of(
        f"{where}.num_bits", bits, FLOATS if is_float else INTEGERS, " bits")
    size = reading.number("group_size", 0, weights, f"{where}.")
    block = reading.block(f"{where}.block_structure", weights.get("block_structure"))
    if dtype is None or size is None:
        return None
    name = group.get("format") or reading.get("format")
    is_shared_exponent = "uint8" in str(weights.get("scale_dtype")) or str(name).startswith("mxfp") or size == 32
    if dtype == "fp4" and not is_shared_exponent and group.get("input_activations", "unknown") is None:
        return nvfp4_weights(METHOD, size if size > 0 else 16)
    if dtype == "fp4":
        return microscaled(METHOD, "fp4") if is_shared_exponent else nvfp4(METHOD, size if size > 0 else 16)
    if block and not size > 0:
        return in_blocks(METHOD, *block) if is_float else in_groups(METHOD, dtype, block[1], FP16_BITS)
    if dtype == "fp8":
        return _fp8(weights.get("strategy"), size, is_shared_exponent)
    return _integers(reading, dtype, weights, size, name)


def _fp8(strategy, size: int, is_shared_exponent: bool) -> Format:
    if size > 0:
        return microscaled(METHOD, "fp8") if is_shared_exponent else in_groups(METHOD, "fp8", size, FP32_BITS)
    return per_row(METHOD) if strategy == "channel" else per_tensor(METHOD)


def _integers(reading: Reading, dtype: str, weights: dict, size: int, name) -> Format:
    # Packed weights have scales of 16 bit, int8 beside int8 activations has float32.
    if size <= 0 and weights.get("strategy") == "tensor":
        return per_tensor(METHOD, dtype)
    zero = 0 if weights.get("symmetric", True) else int(dtype.removeprefix("int"))
    is_wide = name == "int-quantized" and size <= 0
    return in_groups(METHOD, dtype, max(size, 0), FP32_BITS if is_wide else FP16_BITS + zero)
