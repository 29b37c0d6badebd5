"""Weights of the vision tower and projector that a multimodal checkpoint loads beside the language model."""
from collections.abc import Callable

from simulator.config.huggingface.keys import HIDDEN_SIZE, Key, Keys
from simulator.config.words import show


def vision_parameters(keys: Keys) -> int:
    """Return the weights of vision tower and projector; 0 if of unknown kind."""
    table = keys.get("vision_config")
    if table is None:
        return 0
    if not isinstance(table, dict):
        keys.fault("vision_config", f"expected a table, found {show(table)}")
        return 0
    kind = table.get("model_type")
    count = TOWERS.get(kind) if isinstance(kind, str) else None
    if count is None:
        return 0
    vision = Keys(table, f"{keys.file}: vision_config")
    parameters = count(vision, keys.number(HIDDEN_SIZE))
    keys.faults.extend(vision.faults)
    return parameters


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + outputs * bias


def _encoder(width: int, inner: int, count: int) -> int:
    # q, k, v, o and a two-matrix MLP, all with bias, and two LayerNorms
    return count * (4 * _linear(width, width) + _linear(width, inner) + _linear(inner, width) + 4 * width)


def _siglip(keys: Keys, hidden_size: int) -> int:
    """Gemma 3: patches, positions, encoder, LayerNorm; then a norm and a projection without bias."""
    width, inner = keys.number(Key("hidden_size", 768)), keys.number(Key("intermediate_size", 3072))
    patch, image = keys.number(Key("patch_size", 16)), keys.number(Key("image_size", 224))
    tower = _linear(3 * patch * patch, width) + (image // patch) ** 2 * width
    tower += _encoder(width, inner, keys.number(Key("num_hidden_layers", 12))) + 2 * width
    return tower + width + width * hidden_size


def _llama4(keys: Keys, hidden_size: int) -> int:
    """Llama-4: patches, class token, positions, encoder between two LayerNorms; pixel shuffle MLP; projection."""
    width, inner = keys.number(Key("hidden_size", 768)), keys.number(Key("intermediate_size", 5632))
    patch, image = keys.number(Key("patch_size", 14)), keys.number(Key("image_size", 448))
    between, out = keys.number(Key("projector_input_dim", 4096)), keys.number(Key("projector_output_dim", 4096))
    tower = _linear(3 * patch * patch, width, bias=False) + width + ((image // patch) ** 2 + 1) * width + 4 * width
    tower += _encoder(width, inner, keys.number(Key("num_hidden_layers", 34)))
    adapter = inner * between + between * out       # pixel shuffle makes 4 x width, which is the inner width
    return tower + adapter + keys.number(Key("vision_output_dim", 7680)) * hidden_size


TOWERS: dict[str, Callable[[Keys, int], int]] = {
    "llama4_vision_model": _llama4,
    "siglip_vision_model": _siglip,
}
