"""From the parts of each layer to the keys of a model's file: a pattern where there is one, else [[layer_kinds]]."""
from typing import NamedTuple

TABLES = ("attention", "sliding_attention", "linear_attention", "mlp", "moe")
LETTERS = {("attention",): "F", ("sliding_attention",): "S", ("linear_attention",): "L", (): "-"}
NETWORKS = {("mlp",): "dense", ("moe",): "moe", ("mlp", "moe"): "both"}


class LayerNames(NamedTuple):
    """The names of a layer's parts, and its norms."""

    mixers: tuple[str, ...]
    networks: tuple[str, ...]
    norms: int
    around: tuple[str, ...] = ()


def lowered(layers: list[LayerNames], norms: int) -> dict:
    """Return the keys that give these layers; `norms`: norms_per_layer of the model."""
    return _pattern(layers, norms) or {"layer_kinds": _kinds(layers, norms)}


def used(layers: list[LayerNames]) -> set[str]:
    """Return the names of parts that some layers have."""
    return {name for layer in layers for name in (*layer.mixers, *layer.networks, *layer.around)}


def _pattern(layers: list[LayerNames], norms: int) -> dict | None:
    if any(layer.norms != norms or layer.mixers not in LETTERS or layer.around for layer in layers):
        return None
    letters = "".join(LETTERS[layer.mixers] for layer in layers)
    networks = [layer.networks for layer in layers]
    if "-" in letters or () in networks:
        return _sublayers(letters, networks)
    if any(network not in NETWORKS for network in networks):
        return None
    kinds = {NETWORKS[network] for network in networks}
    found = {"layer_pattern": shortest_pattern(letters)}
    if kinds == {"dense"}:
        return found if "moe" not in used(layers) else None
    if "both" in kinds and "moe" in kinds:
        return None
    placed = _placement([i for i, network in enumerate(networks) if network != ("mlp",)], len(layers))
    return None if placed is None else found | placed | {"dense_mlp_beside_moe": "both" in kinds}


def _sublayers(letters: str, networks: list[tuple[str, ...]]) -> dict | None:
    """Return the pattern of layers with one sublayer each."""
    if any((letter == "-") != bool(network) for letter, network in zip(letters, networks, strict=True)):
        return None
    found = {network for network in networks if network}
    if "-" not in letters or len(found) != 1 or found.pop() not in (("mlp",), ("moe",)):
        return None
    return {"layer_pattern": shortest_pattern(letters)}


def _placement(experts: list[int], count: int) -> dict | None:
    """Return the leading dense layers, or the interval, that put experts on exactly these layers."""
    first = experts[0] if experts else count
    if experts == list(range(first, count)):
        return {"first_dense_layers": first} if first else {}
    if experts == list(range(first, count, first + 1)):
        return {"moe_layer_interval": first + 1}
    return None


def _kinds(layers: list[LayerNames], norms: int) -> list[dict]:
    found: dict[LayerNames, list[int]] = {}
    for number, layer in enumerate(layers):
        found.setdefault(layer, []).append(number)
    return [{"layers": numbers, "parts": [*layer.mixers, *layer.networks, *layer.around]}
            | ({} if layer.norms == norms else {"norms": layer.norms}) for layer, numbers in found.items()]


def shortest_pattern(letters: str) -> str:
    """Return the shortest text that, repeated, gives these letters."""
    count = len(letters)
    return next((letters[:n] for n in range(1, count) if letters[n:] == letters[:count - n]), letters)
