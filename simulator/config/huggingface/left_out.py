"""Parts of layers that a checkpoint leaves in 16 bit, from its list of unquantized modules.

The list is `ignore` (compressed-tensors, ModelOpt), `exclude_modules` (ModelOpt), `ignored_layers`,
`modules_to_not_convert` (fp8, fbgemm_fp8, AWQ, MXFP4) or `llm_int8_skip_modules` (bitsandbytes). compressed-tensors
marks regular expressions with "re:", ModelOpt writes globs, transformers takes any part of a module's name.
"""
import re
from fnmatch import fnmatchcase

from simulator.config.huggingface.keys import Keys

LISTS = ("ignore", "exclude_modules", "ignored_layers", "modules_to_not_convert", "llm_int8_skip_modules")
# A part is unquantized if one of these projections is listed; a model has one projection of each row.
MODULES = {
    "attention": ("self_attn.o_proj", "linear_attn.out_proj"),
    "mlp": ("mlp.down_proj",),
    "shared_experts": ("mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj"),
    "experts": ("mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2"),
}
ROOTS = ("model.", "language_model.model.", "model.language_model.", "")


def left_out(keys: Keys, table: dict) -> dict:
    """Return, by part, the layers in which it is unquantized: "all", or their numbers.

    keys : of the model. table : its quantization_config.
    """
    patterns = [each for name in LISTS if isinstance(table.get(name), list) for each in table[name]
                if isinstance(each, str)]
    count = keys.get("num_hidden_layers")
    if not patterns or type(count) is not int or not 0 < count <= 10_000:
        return {}
    linear, found = _linear_layers(keys, count), {}
    for part, modules in MODULES.items():
        layers = tuple(layer for layer in range(count) if any(
            _is_listed(patterns, f"layers.{layer}.{module}") for module in modules
            if part != "attention" or (module.startswith("linear") == (layer in linear))))
        if layers:
            found[part] = "all" if len(layers) == count else layers
    return found


def _linear_layers(keys: Keys, count: int) -> set[int]:
    """Return the layers of linear attention: the listed layers, or all but every n-th."""
    types, interval = keys.get("layer_types"), keys.get("full_attention_interval")
    if isinstance(types, list):
        return {i for i, each in enumerate(types) if each == "linear_attention"}
    return {i for i in range(count) if (i + 1) % interval} if type(interval) is int and interval > 0 else set()


def _is_listed(patterns: list[str], module: str) -> bool:
    return any(_matches(pattern, root + module) for pattern in patterns for root in ROOTS)


def _matches(pattern: str, module: str) -> bool:
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], module) is not None
        except re.error:
            return False
    return fnmatchcase(module, pattern) or f".{pattern}." in f".{module}."
