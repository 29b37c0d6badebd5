"""The vision tower and projector that a multimodal checkpoint loads beside the language model."""
from collections.abc import Callable
from typing import NamedTuple

from simulator.config.huggingface import towers
from simulator.config.huggingface.keys import HIDDEN_SIZE, Keys
from simulator.config.words import show


class Reader(NamedTuple):
    """How to read the tower of an architecture.

    read : from the keys of vision_config, the width of the language model and all keys.
    model_types : of a vision_config that it takes, besides none.
    """

    read: Callable[[Keys, int, Keys], towers.Found]
    model_types: tuple[str, ...]


QWEN2_VL = Reader(towers.qwen2_vl, ("qwen2_vl", "qwen2_vl_vision"))
QWEN2_5_VL = Reader(towers.qwen2_5_vl, ("qwen2_5_vl", "qwen2_5_vl_vision"))
QWEN3_VL = Reader(towers.qwen3_vl, ("qwen3_vl", "qwen3_vl_moe", "qwen3_vl_vision", "qwen3_vl_moe_vision", "qwen3_5",
                                    "qwen3_5_moe", "qwen3_5_vision", "qwen3_5_moe_vision"))
READERS = {
    "Gemma3ForConditionalGeneration": Reader(towers.gemma3, ("siglip_vision_model",)),
    "Gemma4ForConditionalGeneration": Reader(towers.gemma4, ("gemma4_vision",)),
    "KimiK25ForConditionalGeneration": Reader(towers.kimi_k25, ("kimi_k25_vision", "kimi_k25", "moonvit")),
    "Llama4ForConditionalGeneration": Reader(towers.llama4, ("llama4_vision_model",)),
    "MiniMaxM3SparseForConditionalGeneration": Reader(
        towers.minimax_m3, ("clip_vision_model", "minimax_m3_vl_vision")),
    "Mistral3ForConditionalGeneration": Reader(towers.pixtral, ("pixtral",)),
    "Qwen2VLForConditionalGeneration": QWEN2_VL,
    "Qwen2_5_VLForConditionalGeneration": QWEN2_5_VL,
    "Qwen3VLForConditionalGeneration": QWEN3_VL,
    "Qwen3VLMoeForConditionalGeneration": QWEN3_VL,
    "Qwen3_5ForConditionalGeneration": QWEN3_VL,
    "Qwen3_5MoeForConditionalGeneration": QWEN3_VL,
    "Step3p7ForConditionalGeneration": Reader(towers.step3p7, ("step3p5_vision", "step3p7_vision")),
}


def vision_fields(keys: Keys) -> dict:
    """Return vision_parameters, vision and unknown_towers of a ModelSpec."""
    fields, unknown = _vision(keys)
    unknown += _other_towers(keys)
    return fields | ({"unknown_towers": unknown} if unknown else {})


def _vision(keys: Keys) -> tuple[dict, tuple[str, ...]]:
    """Return the fields of the vision tower, and its name if it is of unknown kind."""
    table = keys.get("vision_config")
    if table is None:
        return {}, ()
    if not isinstance(table, dict):
        keys.fault("vision_config", f"expected a table, found {show(table)}")
        return {}, ()
    architecture, kind = _architecture(keys), table.get("model_type")
    reader = READERS.get(architecture)
    if reader is None or (kind is not None and kind not in reader.model_types):
        return {}, (f"vision_config of {kind or architecture}",)
    vision = Keys(table, f"{keys.file}: vision_config")
    found = reader.read(vision, keys.number(HIDDEN_SIZE), keys)
    keys.faults.extend(vision.faults)
    if found is None:
        return {}, (f"vision_config of {architecture}",)
    return {"vision_parameters": found.parameters} | ({} if vision.faults else {"vision": found.tower}), ()


def _architecture(keys: Keys) -> str | None:
    names = keys.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def _other_towers(keys: Keys) -> tuple[str, ...]:
    """Return the tables of further encoders: they have no known weights."""
    return tuple(f"{name} of {keys.get(name).get('model_type') or _architecture(keys)}"
                 for name in ("audio_config", "speech_config") if isinstance(keys.get(name), dict))
