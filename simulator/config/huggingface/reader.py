"""Read a Hugging Face config.json into a `ModelSpec`."""
import json
import os
from pathlib import Path

import msgspec

from simulator.config.huggingface.agreement import agreed
from simulator.config.huggingface.families import FAMILIES, Experts, Family
from simulator.config.huggingface.formats import read_formats, stated_table
from simulator.config.huggingface.keys import HIDDEN_SIZE, Key, Keys
from simulator.config.huggingface.layers import shortest_pattern
from simulator.config.huggingface.quantization import read_quantization
from simulator.config.huggingface.tensor_files import read_tensor_files
from simulator.config.huggingface.vision import vision_parameters
from simulator.config.words import show
from simulator.domain.layers.base import MAX_LAYERS
from simulator.domain.model_spec import ModelSpec
from simulator.errors import InputErrors, did_you_mean

DTYPES = ("float32", "bfloat16", "float16")
# Rope types with the factor already in max_position_embeddings; vLLM, vllm/config/model.py, _get_and_verify_max_len.
UNSCALED_ROPE = ("default", "su", "longrope", "llama3", "mrope")


def read_config(path: str | os.PathLike) -> ModelSpec:
    """Return the model that a config.json, or the one in a folder, describes.

    Raises
    ------
    InputErrors
        A file that is no JSON (with line and column); an unknown architecture; every key that is missing or
        does not make sense.
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    keys = Keys(_with_quantization(_table(file), file.with_name("hf_quant_config.json")), str(file))
    keys.files = read_tensor_files(file.parent)
    family = _family(keys)
    fields = _model(keys, family)
    if not keys.faults:
        try:
            model = msgspec.convert(fields | {"name": file.resolve().parent.name}, ModelSpec)
        except msgspec.ValidationError as error:
            keys.faults.append(f"{file}: {error}")
        else:
            return agreed(model, keys.files, read_formats(keys), str(file))
    raise InputErrors(dict.fromkeys(keys.faults))


def _with_quantization(table: dict, beside: Path) -> dict:
    # ModelOpt before 0.31 wrote its format into a file of its own.
    stated = stated_table(table) or (_table(beside) if beside.is_file() else None)
    return table | {"quantization_config": stated} if stated is not None else table


def _table(file: Path) -> dict:
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputErrors([f"{file}:{error.lineno}: column {error.colno}: not JSON: {error.msg}"]) from error
    except OSError as error:
        raise InputErrors([f"{file}: {error.strerror or error}"]) from error
    except (ValueError, RecursionError) as error:   # no UTF-8, a number or a nesting beyond what Python reads
        raise InputErrors([f"{file}: not JSON: {error}"]) from error
    if not isinstance(table, dict):
        raise InputErrors([f"{file}: expected a JSON object, found {show(table)}"])
    return table


def _family(keys: Keys) -> Family:
    names = keys.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        what = "required key is missing" if names is None else f"expected a list of names, found {show(names)}"
        raise InputErrors([f"{keys.file}: architectures: {what}"])
    if names[0] not in FAMILIES:
        nearest = did_you_mean(names[0], FAMILIES)
        known = "" if nearest.startswith("; valid") else f"; known: {', '.join(sorted(FAMILIES))}"
        raise InputErrors([f"{keys.file}: architectures: {show(names[0])} is not supported{nearest}{known}"])
    return FAMILIES[names[0]]


def _model(keys: Keys, family: Family) -> dict:
    num_layers = keys.number(Key("num_hidden_layers|n_layer"))
    if num_layers > MAX_LAYERS:
        keys.fault("num_hidden_layers", f"expected at most {MAX_LAYERS}, found {num_layers}")
        num_layers = 1
    for name in filter(keys.get, family.refused):
        keys.fault(name, f"{show(keys.get(name))} is not supported")
    layers = family.layout(keys, num_layers)
    experts = family.experts if family.experts and keys.number(family.experts.count) else None
    placement = _expert_placement(keys, experts, num_layers) if experts else {}
    is_dense = experts is None or experts.dense_beside or len(placement) > 0
    fields = {
        "num_layers": num_layers,
        "hidden_size": keys.number(HIDDEN_SIZE),
        "vocab_size": keys.number(family.vocab),
        "max_position_embeddings": _context(keys, family),
        "dtype": _dtype(keys),
        "tie_word_embeddings": keys.flag(family.tie),
        "norms_per_layer": family.norms_per_layer,
        "norm_bias": family.norm_bias,
        "embedding_norm": family.embedding_norm,
        "lm_head_bias": keys.flag(family.lm_head_bias),
        "layer_pattern": shortest_pattern(layers.letters, num_layers),
        "attention": family.attention(keys, family),
        "sliding_attention": layers.sliding,
        "linear_attention": layers.linear,
        "mlp": _mlp(keys, family) if is_dense else None,
        "moe": _moe(keys, experts) if experts else None,
        "dense_mlp_beside_moe": experts is not None and experts.dense_beside,
        "num_mtp_layers": keys.number(family.num_mtp_layers),
        "vision_parameters": vision_parameters(keys),
    }
    quantization = read_quantization(keys)
    return fields | placement | ({"quantization": msgspec.to_builtins(quantization)} if quantization else {})


def _mlp(keys: Keys, family: Family) -> dict:
    size = keys.number(family.mlp_size) or 4 * keys.number(HIDDEN_SIZE)
    return {"intermediate_size": max(1, size // family.mlp_divisor), "gated": family.mlp_gated,
            "bias": keys.flag(family.mlp_bias)}


def _moe(keys: Keys, experts: Experts) -> dict:
    size = keys.number(experts.size)
    return {
        "num_experts": keys.number(experts.count),
        "experts_per_token": keys.number(experts.per_token),
        "intermediate_size": size,
        "shared_intermediate_size": keys.number(experts.shared_size) or keys.number(experts.num_shared) * size,
        "shared_expert_gate": experts.shared_gate,
        "gated": experts.gated,
        "expert_bias": experts.bias,
        "router_bias": experts.router_bias,
        "num_groups": keys.number(experts.groups),
    }


def _expert_placement(keys: Keys, experts: Experts, num_layers: int) -> dict:
    """Return first_dense_layers and moe_layer_interval if some layers are dense, else an empty dict."""
    placement = {"first_dense_layers": keys.number(experts.first_dense),
                 "moe_layer_interval": keys.number(experts.interval)}
    listed = _layers_with_experts(keys, experts, num_layers)
    if listed is not None:
        placement = _rule_for(listed, num_layers)
        if placement is None:
            names = " or ".join(filter(None, (experts.dense_layers, experts.moe_layers, experts.layer_marks)))
            keys.fault(names, "experts on layers that are neither all but the first ones nor every n-th: not supported")
            return {}
    plain = {"first_dense_layers": 0, "moe_layer_interval": 1}
    return {name: value for name, value in placement.items() if value != plain[name]}


def _layers_with_experts(keys: Keys, experts: Experts, num_layers: int) -> set[int] | None:
    everything = set(range(num_layers))
    interval = keys.get(experts.layer_marks) if experts.layer_marks else None
    if type(interval) is int and interval > 0:
        return set(range(0, num_layers, interval)) - set(range(keys.number(experts.first_dense)))
    marks = keys.sequence(experts.layer_marks, num_layers, (0, 1)) if experts.layer_marks else None
    if marks is not None:
        return {layer for layer, mark in enumerate(marks) if mark}
    for name, is_dense in ((experts.dense_layers, True), (experts.moe_layers, False)):
        listed = keys.get(name) if name else None
        if not listed:
            continue
        if not isinstance(listed, list) or any(type(layer) is not int or layer not in everything for layer in listed):
            keys.fault(name, f"expected a list of layers from 0 to {num_layers - 1}, found {show(listed)}")
            return everything
        if not is_dense:
            return set(listed)
        interval = keys.number(experts.interval)
        return {layer for layer in everything - set(listed) if (layer + 1) % interval == 0}
    return None


def _rule_for(moe_layers: set[int], num_layers: int) -> dict | None:
    """Return the leading dense layers, or the interval, that put experts on exactly these layers."""
    first = min(moe_layers, default=num_layers)
    if moe_layers == set(range(first, num_layers)):
        return {"first_dense_layers": first, "moe_layer_interval": 1}
    if moe_layers == set(range(first, num_layers, first + 1)):
        return {"first_dense_layers": 0, "moe_layer_interval": first + 1}
    return None


def _dtype(keys: Keys) -> str:
    # An absent key means float32, and vLLM by default runs float32 checkpoints in bfloat16.
    value = keys.get("dtype|torch_dtype", "bfloat16")
    name = value.removeprefix("torch.") if isinstance(value, str) else None
    if name not in DTYPES:
        keys.fault("torch_dtype", f"expected one of {', '.join(DTYPES)}, found {show(value)}")
        return "bfloat16"
    return name


def _context(keys: Keys, family: Family) -> int:
    """Return the longest context in tokens, as vLLM derives max_model_len from it and the rope scaling."""
    context = keys.number(family.context)
    rope = keys.get("rope_scaling|rope_parameters")
    if not family.scales_context or not isinstance(rope, dict):
        return context
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if not isinstance(kind, str) or kind in UNSCALED_ROPE or factor is None:
        return context
    if type(factor) not in (int, float) or not 0 < factor <= 2**20:
        keys.fault("rope_scaling.factor", f"expected a number above 0, found {show(factor)}")
        return context
    if kind == "yarn":
        original = rope.get("original_max_position_embeddings", context)
        if type(original) is not int or not 0 < original <= 2**40:
            name = "rope_scaling.original_max_position_embeddings"
            keys.fault(name, f"expected an integer >= 1, found {show(original)}")
            return context
        context = original
    return max(1, int(context * factor))
