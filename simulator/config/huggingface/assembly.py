"""The parts of each layer of a model, named, from the rules of its family."""
from collections.abc import Callable

from simulator.config.huggingface.family import Family
from simulator.config.huggingface.keys import HIDDEN_SIZE, Keys
from simulator.config.huggingface.layers import Layers
from simulator.config.huggingface.lowering import LayerNames, lowered, used
from simulator.config.huggingface.networks import LINEAR, Experts, layers_with_experts, most_frequent, read_moe


def assembled(keys: Keys, family: Family, count: int) -> dict:
    """Return the tables of parts, and the keys that place them, of all layers."""
    layers = family.layout(keys, count)
    per_layer = layers.per_layer or keys.of_layers(count)
    per_layer = per_layer if len(per_layer) == count else per_layer * count
    tables: dict[str, dict] = {"sliding_attention": layers.sliding, "linear_attention": layers.linear}
    parts = dict(layers.parts)
    mixers = _mixers(per_layer, family, layers, tables, parts)
    networks = _networks(keys, per_layer, family, layers, tables, parts)
    norms = layers.norms or _norms(keys, family, networks)
    found = [LayerNames(*names, layers.around) for names in zip(mixers, networks, norms, strict=True)]
    if any(LINEAR in each for each in networks):
        parts[LINEAR] = {"linear": {}}
    common = max(dict.fromkeys(norms), key=norms.count)
    names = used(found)
    kept = names | ({"attention"} if "sliding_attention" in names else set())
    return ({name: table for name, table in tables.items() if name in kept and table is not None}
            | {"parts": {name: part for name, part in parts.items() if name in names}, "norms_per_layer": common}
            | lowered(found, common))


def _mixers(per_layer: list[Keys], family: Family, layers: Layers, tables: dict, parts: dict) -> list[tuple[str, ...]]:
    """Return the names of each layer's mixers; attention of other sizes than the most frequent one goes to `parts`."""
    count = len(per_layer)
    names = [layers.names(letter) for letter in (layers.letters * count)[:count]]
    read = _once(lambda keys: family.attention(keys, family))
    full = [read(keys) for keys, each in zip(per_layer, names, strict=True) if "attention" in each]
    sliding = [read(keys) for keys, each in zip(per_layer, names, strict=True) if "sliding_attention" in each]
    kinds = most_frequent(full or sliding)
    if not kinds:
        return names
    tables["attention"] = kinds[0]
    found = []
    for keys, each in zip(per_layer, names, strict=True):
        own = {"attention": read(keys), "sliding_attention": read(keys)} if set(each) & {
            "attention", "sliding_attention"} else {}
        found.append(tuple(_variant(name, own[name], kinds[0], layers, parts) if name in own else name
                           for name in each))
    return found


def _once(read: Callable[[Keys], dict]) -> Callable[[Keys], dict]:
    """Return the function with its results kept: most layers have the same keys."""
    known: dict[int, dict] = {}

    def kept(keys: Keys) -> dict:
        if id(keys) not in known:
            known[id(keys)] = read(keys)
        return known[id(keys)]
    return kept


def _variant(name: str, table: dict, common: dict, layers: Layers, parts: dict) -> str:
    """Return the name of a mixer that may differ from [attention], and enter it into `parts`."""
    if table == common:
        return name
    part = {"mixer": table}
    if name == "sliding_attention":
        change = dict(layers.sliding)
        part |= {key: change.pop(key) for key in ("window", "chunked") if key in change}
        part["mixer"] = table | {key: value for key, value in change.items() if value}
    return _entered(name, part, parts)


def _entered(name: str, part: dict, parts: dict) -> str:
    """Return the name of an equal part, or of `part`, which joins `parts` as NAME_2, NAME_3, ..."""
    known = next((each for each, other in parts.items() if other == part), None)
    if known is None:
        known = f"{name}_{2 + sum(each.startswith(f'{name}_') for each in parts)}"
        parts[known] = part
    return known


def _networks(keys: Keys, per_layer: list[Keys], family: Family, layers: Layers, tables: dict,
              parts: dict) -> list[tuple[str, ...]]:
    names = layers.networks or _network_names(keys, per_layer, family)
    readers = {"mlp": _once(lambda each: read_mlp(each, family)),
               "moe": _once(lambda each: read_moe(each, family.experts))}
    found = [list(each) for each in names]
    for name, read in readers.items():
        having = [i for i, each in enumerate(names) if name in each]
        kinds = most_frequent(read(per_layer[i]) for i in having)
        if not kinds:
            continue
        tables[name] = kinds[0]
        for i in having:
            table = read(per_layer[i])
            own = name if table == kinds[0] else _entered(name, {name: table}, parts)
            found[i] = [own if each == name else each for each in found[i]]
    return [tuple(each) for each in found]


def _network_names(keys: Keys, per_layer: list[Keys], family: Family) -> list[tuple[str, ...]]:
    experts = experts_of(per_layer[-1], family)
    if experts is None:
        return [("mlp",)] * len(per_layer)
    chosen = layers_with_experts(keys, experts, len(per_layer))
    with_experts = ("mlp", "moe") if experts.dense_beside else ("moe",)
    return [with_experts if i in chosen else ("mlp",) for i in range(len(per_layer))]


def experts_of(keys: Keys, family: Family) -> Experts | None:
    """Return the family's keys of experts, or None for a model without any."""
    return family.experts if family.experts and keys.number(family.experts.count) else None


def _norms(keys: Keys, family: Family, networks: list[tuple[str, ...]]) -> list[int]:
    norms = family.norms_per_layer if isinstance(family.norms_per_layer, int) else family.norms_per_layer(keys)
    more = family.experts.more_norms if family.experts else 0
    return [norms + more * any(name.startswith("moe") for name in each) for each in networks]


def read_mlp(keys: Keys, family: Family) -> dict:
    """Read the dense network of a layer."""
    size = keys.number(family.mlp_size) or keys.number(family.mlp_ratio) * keys.number(HIDDEN_SIZE)
    return {"intermediate_size": max(1, size // family.mlp_divisor), "gated": keys.flag(family.mlp_gated),
            "bias": keys.flag(family.mlp_bias), "activation_weights": family.activation_weights}
