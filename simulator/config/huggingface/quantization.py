"""A checkpoint's quantisation as one format with exceptions by part and layer, from the formats of its matrices."""
from simulator.config.huggingface.formats import WHERE, ModuleFormats, read_formats
from simulator.config.huggingface.keys import Keys
from simulator.domain.layers.base import MAX_LAYERS
from simulator.domain.model_spec import Quantization, Unquantized
from simulator.domain.stored_format import Format

# A part has the format of the first of its projections that has one; a model has one projection of each row.
MODULES = {
    "attention": ("self_attn.o_proj", "linear_attn.out_proj"),
    "mlp": ("mlp.down_proj",),
    "shared_experts": ("mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj",
                       "block_sparse_moe.shared_experts.down_proj"),
    "experts": ("mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2"),
}


def read_quantization(keys: Keys) -> Quantization | None:
    """Return how weights are quantised, or None; faults are left in `keys`."""
    num_faults = len(keys.faults)
    formats = read_formats(keys)
    count = keys.get("num_hidden_layers|n_layer")
    if formats is None or len(keys.faults) > num_faults:
        return None
    count = count if type(count) is int and 0 < count <= MAX_LAYERS else 1
    has_experts = any(keys.get(name) for name in ("num_experts", "n_routed_experts", "num_local_experts"))
    parts = {part: _of_part(formats, part, count, _linear_layers(keys, count)) for part in MODULES}
    if not has_experts and any(map(any, (parts["attention"], parts["mlp"]))):
        parts = {part: found for part, found in parts.items() if "experts" not in part}
    return _summary(keys, formats, parts, count)


def _summary(keys: Keys, formats: ModuleFormats, parts: dict, count: int) -> Quantization | None:
    kinds = {(each.weight_dtype, each.group_size, each.scale_bits): each
             for found in parts.values() for each in found if each is not None}
    if len(kinds) > 1:
        keys.fault(WHERE, "matrices in several formats are not supported: " + ", ".join(
            f"{dtype} in groups of {group}" if group else dtype for dtype, group, _ in kinds))
    if len(kinds) != 1:
        return None
    form = next(iter(kinds.values()))
    left = {part: tuple(i for i, each in enumerate(found) if each is None) for part, found in parts.items()}
    left = {part: "all" if len(layers) == count else layers for part, layers in left.items() if layers}
    scope = "experts" if "experts" in parts and left.get("attention") == "all" else "linear"
    if scope == "experts":          # other parts are not quantised
        left = {part: layers for part, layers in left.items() if part == "experts"}
    return Quantization(
        method=formats.method, weight_dtype=form.weight_dtype, scope=scope, group_size=form.group_size,
        scale_bits=form.scale_bits if form.group_size else 0, kv_cache_dtype=formats.kv_cache_dtype,
        unquantized=Unquantized(**left) if left else None)


def _of_part(formats: ModuleFormats, part: str, count: int, linear: set[int]) -> list[Format | None]:
    """Return the format of a part in each layer."""
    found = []
    for layer in range(count):
        modules = [each for each in MODULES[part]
                   if part != "attention" or each.startswith("linear") == (layer in linear)]
        each = (formats.format_of(f"model.layers.{layer}.{module}") for module in modules)
        found.append(_first(list(each), part == "attention"))
    return found


def _first(found: list[Format | None], any_left: bool) -> Format | None:
    return found[0] if any_left else next((None for each in found if each is None), found[0])


def _linear_layers(keys: Keys, count: int) -> set[int]:
    """Return the layers of linear attention: the listed layers, or all but every n-th."""
    types, interval = keys.get("layer_types"), keys.get("full_attention_interval")
    if isinstance(types, list):
        return {i for i, each in enumerate(types) if each == "linear_attention"}
    return {i for i in range(count) if (i + 1) % interval} if type(interval) is int and interval > 0 else set()
