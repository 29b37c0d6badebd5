"""A checkpoint's quantisation, from the formats of its matrices: one with exceptions, or a list of matrices."""
import json
from collections import Counter
from collections.abc import Iterator

from simulator.config.huggingface.family import Family
from simulator.config.huggingface.formats import WHERE, ModuleFormats
from simulator.config.huggingface.keys import Keys
from simulator.config.huggingface.matrix_names import ALWAYS_PLAIN, HEADS, Names, modules_of
from simulator.domain.layer_list import Layer
from simulator.domain.matrix_formats import EXPERTS, HEAD, StoredMatrices
from simulator.domain.model_spec import ModelSpec, Quantization, Unquantized
from simulator.domain.stored_format import Format

Found = dict[str, dict[int, Format | None]]         # by "PART.MATRIX" and layer


def read_quantization(keys: Keys, model: ModelSpec, family: Family, formats: ModuleFormats | None,
                      ) -> Quantization | None:
    """Return how the weights of a model are quantised, or None."""
    if formats is None:
        return None
    found, weights = _formats(formats, model, Names(_text(keys), family.modules))
    head = formats.first_named(HEADS)
    kinds = Counter()
    for name, layers in found.items():
        for layer, stored in layers.items():
            kinds[stored] += weights[name, layer]
    kinds = Counter({stored: count for stored, count in kinds.items() if stored is not None})
    if not kinds:
        return None
    main = max(kinds, key=kinds.get)
    return (_summary(formats, main, found, model) if len(kinds) == 1 and head is None else None) or _listed(
        formats, main, found, head, model.num_layers)


def _text(keys: Keys) -> str:
    """Return the names of modules that show the words of a checkpoint; experts are alike."""
    table = keys.get(WHERE, {})
    rows = table.get("quantized_layers") if isinstance(table, dict) else None
    names = [*(rows or ()), *((keys.files and keys.files.tensors) or ())]
    others = {name: value for name, value in table.items() if name != "quantized_layers"}
    return json.dumps(others) + "\n".join(name for name in names if ".experts." not in name or ".experts.0." in name)


def _formats(formats: ModuleFormats, model: ModelSpec, known: Names) -> tuple[Found, dict[tuple[str, int], float]]:
    """Return the formats of all matrices, and their weights."""
    found: Found = {}
    weights = {}
    for layer, numbers in model.kinds.items():
        alike = formats.alike(numbers)
        for name, modules, count in _matrices(layer, model.hidden_size, known):
            of_layers = found.setdefault(name, {})
            for number, first in alike.items():
                if first == number:
                    of_layers[number] = formats.first_named([f"model.layers.{number}.{module}" for module in modules])
                else:
                    of_layers[number] = of_layers[first]
                weights[name, number] = count
    return found, weights


def _matrices(layer: Layer, hidden: int, known: Names) -> Iterator[tuple[str, list[str], float]]:
    """Yield name, modules and weights of the matrices of a layer."""
    for part, each in layer.named_parts():
        for matrix in each.matrices(hidden):
            if matrix.parameters:
                modules = modules_of(part, matrix.name, each.backend, known)
                yield f"{part}.{matrix.name}", modules, matrix.parameters
    if (moe := layer.moe) is not None:
        for matrix in moe.expert.matrices(moe.expert_width(hidden)):
            if matrix.parameters:
                yield (f"{EXPERTS}.{matrix.name}", modules_of(EXPERTS, matrix.name, "", known),
                       moe.num_experts * matrix.parameters)


def _summary(formats: ModuleFormats, main: Format, found: Found, model: ModelSpec) -> Quantization | None:
    """Return one format with parts that stay as they are; None: matrices of a part differ."""
    parts: dict[str, dict[int, Format | None]] = {}
    for name, layers in found.items():
        part, _, matrix = name.partition(".")
        if matrix in ALWAYS_PLAIN:
            continue
        for layer, stored in layers.items():
            if parts.setdefault(part, {}).setdefault(layer, stored) != stored:
                return None
    if parts.pop("around", None):
        return None
    left = {part: tuple(sorted(layer for layer, stored in layers.items() if stored is None))
            for part, layers in parts.items()}
    left = {part: "all" if len(layers) == len(parts[part]) else layers for part, layers in left.items() if layers}
    scope = "experts" if EXPERTS in parts and all(
        left.get(part) == "all" for part in parts if part != EXPERTS) else "linear"
    if scope == "experts":          # other parts are not quantised
        left = {part: layers for part, layers in left.items() if part == EXPERTS}
    stored = Quantization.of_format(main)
    return Quantization(
        method=formats.method, weight_dtype=stored.weight_dtype, scope=scope, group_size=stored.group_size,
        scale_bits=stored.scale_bits, multiplied_as=stored.multiplied_as,
        kv_cache_dtype=formats.kv_cache_dtype,
        unquantized=Unquantized(**left) if left else None)


def _listed(formats: ModuleFormats, main: Format, found: Found, head: Format | None, num_layers: int) -> Quantization:
    """Return the quantisation with a list of all matrices; `main` has most weights."""
    names: dict[tuple[Format, tuple[int, ...]], list[str]] = {}
    for name, layers in found.items():
        by_format: dict[Format, list[int]] = {}
        for layer, stored in sorted(layers.items()):
            if stored is not None:
                by_format.setdefault(stored, []).append(layer)
        for stored, numbers in by_format.items():
            names.setdefault((stored, tuple(numbers)), []).append(name)
    rows = [StoredMatrices(names=tuple(each), format=stored, layers="all" if len(numbers) == num_layers else numbers)
            for (stored, numbers), each in names.items()]
    if head is not None:
        rows.append(StoredMatrices(names=(HEAD,), format=head))
    stored = Quantization.of_format(main)
    return Quantization(
        method=formats.method, weight_dtype=stored.weight_dtype, group_size=stored.group_size,
        scale_bits=stored.scale_bits, multiplied_as=stored.multiplied_as,
        kv_cache_dtype=formats.kv_cache_dtype, matrices=tuple(rows))
