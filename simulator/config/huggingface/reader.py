"""Read a Hugging Face config.json into a `ModelSpec`."""
import json
import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from simulator.config.huggingface import unfamiliar
from simulator.config.huggingface.agreement import agreed
from simulator.config.huggingface.assembly import assembled
from simulator.config.huggingface.families import FAMILIES
from simulator.config.huggingface.family import Family
from simulator.config.huggingface.formats import read_formats, stated_table
from simulator.config.huggingface.keys import HIDDEN_SIZE, NUM_LAYERS, Key, Keys
from simulator.config.huggingface.quantization import read_quantization
from simulator.config.huggingface.rows_encoders import ENCODERS
from simulator.config.huggingface.tasks import check_direction, decoder_of, encoder_of, why_not
from simulator.config.huggingface.tensor_files import read_tensor_files
from simulator.config.huggingface.vision import vision_fields
from simulator.config.words import show
from simulator.domain.layers.base import MAX_LAYERS
from simulator.domain.model_spec import ModelSpec
from simulator.errors import InputErrors, did_you_mean

LISTS_OF_LAYERS = ("layers_block_type", "layer_types", "block_configs", "hybrid_layer_pattern")
LARGE = 2**18               # bytes of a file that is decoded by msgspec
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
    table = _table(file)
    keys = Keys(_with_quantization(table, file.with_name("hf_quant_config.json")), str(file))
    keys.files = read_tensor_files(file.parent)
    family = _family(keys)
    fields = _model(keys, family)
    model = _converted(keys, fields | {"name": file.resolve().parent.name})
    formats = read_formats(keys)
    quantization = read_quantization(keys, model, family, formats) if model else None
    if keys.faults:
        raise InputErrors(dict.fromkeys(keys.faults))
    architecture = table["architectures"][0]
    model = replace(model, quantization=quantization, architecture=architecture,
                    model_type=str(table.get("model_type") or ""),
                    checkpoint_note=unfamiliar.note(architecture, keys) if keys.assumed else "")
    return agreed(model, keys)


def _converted(keys: Keys, fields: dict) -> ModelSpec | None:
    """Return the model of these fields; None: there are faults."""
    if keys.faults:
        return None
    try:
        return msgspec.convert(fields, ModelSpec)
    except msgspec.ValidationError as error:
        keys.faults.append(f"{keys.file}: {error}")
        return None


def _with_quantization(table: dict, beside: Path) -> dict:
    # ModelOpt before 0.31 wrote its format into a file of its own.
    stated = stated_table(table) or (_table(beside) if beside.is_file() else None)
    return table | {"quantization_config": stated} if stated is not None else table


def _table(file: Path) -> dict:
    try:
        table = _decoded(file.read_bytes())
    except json.JSONDecodeError as error:
        raise InputErrors([f"{file}:{error.lineno}: column {error.colno}: not JSON: {error.msg}"]) from error
    except OSError as error:
        raise InputErrors([f"{file}: {error.strerror or error}"]) from error
    except (ValueError, RecursionError) as error:   # no UTF-8, a number or a nesting beyond what Python reads
        raise InputErrors([f"{file}: not JSON: {error}"]) from error
    if not isinstance(table, dict):
        raise InputErrors([f"{file}: expected a JSON object, found {show(table)}"])
    return table


def _decoded(text: bytes) -> object:
    if len(text) >= LARGE:          # names of all experts: msgspec takes half the time, and knows no NaN
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            pass
    return json.loads(text.decode("utf-8-sig"))


def _family(keys: Keys) -> Family:
    """Return the rules of the architecture; without a name, those by which the other faults are found."""
    names = keys.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        what = "required key is missing" if names is None else f"expected a list of names, found {show(names)}"
        keys.fault("architectures", what)
        return unfamiliar.family_of(keys)
    if encoder := encoder_of(names[0], ENCODERS):
        return ENCODERS[encoder]
    if names[0] not in FAMILIES and (decoder := decoder_of(names[0], FAMILIES)):
        return FAMILIES[decoder]._replace(has_head=False, num_mtp_layers=0)
    if why := why_not(names[0]):
        raise InputErrors([f"{keys.file}: architectures: {show(names[0])} is not supported: {why}"])
    if names[0] not in FAMILIES and unfamiliar.is_readable(names[0]):
        unfamiliar.unread_keys(keys)
        unfamiliar.unknown_defaults(keys)
        return unfamiliar.family_of(keys)
    if names[0] not in FAMILIES:
        nearest = did_you_mean(names[0], FAMILIES)
        hint = "" if nearest.startswith("; valid") else nearest
        raise InputErrors([f"{keys.file}: architectures: {show(names[0])} is not supported{hint}; "
                           f"{len(FAMILIES)} are known"])
    return FAMILIES[names[0]]


def _model(keys: Keys, family: Family) -> dict:
    num_layers = _num_layers(keys)
    for name in filter(keys.get, family.refused):
        keys.fault(name, f"{show(keys.get(name))} is not supported")
    check_direction(keys)
    context = _context(keys, family)
    positions = keys.number(family.context) + family.positions if family.positions is not None else 0
    positions += keys.number(family.token_types)
    width = keys.number(HIDDEN_SIZE)
    fields = {
        "num_layers": num_layers,
        "hidden_size": width,
        "vocab_size": keys.number(family.vocab),
        "max_position_embeddings": context,
        "dtype": _dtype(keys),
        "tie_word_embeddings": keys.flag(family.tie),
        "norm_bias": keys.flag(family.norm_bias),
        "embedding_norm": family.embedding_norm,
        "learned_positions": positions,
        "lm_head_bias": keys.flag(family.lm_head_bias),
        "has_head": family.has_head,
        "pooler_parameters": width * (width + 1) * family.has_pooler,
        "num_mtp_layers": keys.number(family.num_mtp_layers),
        "mtp_layer": family.mtp_layer,
    } | vision_fields(keys) | assembled(keys, family, num_layers)
    return fields


def _num_layers(keys: Keys) -> int:
    """Return the number of layers; without a key, the length of a list with an entry for each."""
    listed = next((len(value) for name in LISTS_OF_LAYERS if isinstance(value := keys.get(name), list) and value),
                  None)
    count = keys.number(Key(NUM_LAYERS) if listed is None else Key(NUM_LAYERS, listed))
    if count <= MAX_LAYERS:
        return count
    keys.fault("num_hidden_layers", f"expected at most {MAX_LAYERS}, found {count}")
    return 1


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
    context = max(1, keys.number(family.context) - family.reserved_positions)
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
