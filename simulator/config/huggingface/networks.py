"""Networks of the layers of a Hugging Face model: dense, experts, or both, each with its widths."""
from collections.abc import Iterable
from typing import NamedTuple

from simulator.config.huggingface.keys import Key, Keys
from simulator.config.words import show

MLP_LAYER_TYPES = {"dense": False, "sparse": True, "moe": True, "hash_moe": True}
Number = Key | int
LINEAR = "linear"                               # a projection in place of a network or attention
EXPERTS_BESIDE = "+experts"                     # of one layer's experts, that a layout knows
PER_TOKEN = Key("num_experts_per_tok|num_experts_per_token|moe_topk|moe_k|moe_top_k|top_k_experts|experts_per_token")
COUNT = Key("num_experts|n_routed_experts|num_local_experts|moe_num_experts")
SHARED = Key("n_shared_experts|num_shared_experts|num_shared_expert|moe_num_shared_experts", 0, least=0)
SHARED_SIZE = Key("shared_expert_intermediate_size|shared_intermediate_size|moe_shared_expert_intermediate_size"
                  "|share_expert_dim", 0, least=0)
FIRST_DENSE = "first_k_dense_replace|num_dense_layers|moe_layer_start_index"
INTERVAL = "decoder_sparse_step|interleave_moe_layer_step|moe_layer_interval"


class Experts(NamedTuple):
    """Keys of the routed and shared experts."""

    count: Number = COUNT                       # 0: the model has none
    per_token: Number = PER_TOKEN
    size: Number = Key("moe_intermediate_size")
    shared_size: Number = 0                     # of all shared experts; or:
    num_shared: Number = 0                      # shared experts as wide as routed ones
    shared_gate: bool = False
    gated: bool = True
    bias: bool = False
    router_bias: Key | bool = False
    groups: Number = 1
    first_dense: Number = Key(FIRST_DENSE, 0, least=0)
    interval: Number = Key(INTERVAL, 1)
    dense_beside: bool = False
    more_norms: int = 0                         # of layers with experts, beside the family's


def read_moe(keys: Keys, experts: Experts) -> dict:
    """Read the experts of a layer."""
    known = len(keys.faults)
    size, count, per_token = (keys.number(each) for each in (experts.size, experts.count, experts.per_token))
    zero = keys.number(Key("zero_expert_num", 0, least=0))
    if per_token > count + zero and len(keys.faults) == known:
        keys.fault(PER_TOKEN.names, f"expected at most the {count + zero} experts, found {per_token}")
    return {
        "num_experts": count,
        "experts_per_token": per_token,
        "intermediate_size": size,
        "shared_intermediate_size": keys.number(experts.shared_size) or keys.number(experts.num_shared) * size,
        "shared_expert_gate": experts.shared_gate,
        "gated": experts.gated,
        "expert_bias": experts.bias,
        "router_bias": keys.flag(experts.router_bias),
        "num_groups": keys.number(experts.groups),
        "latent_size": keys.number(Key("moe_latent_size|routed_expert_hidden_size", 0, least=0)),
        "latent_norm": keys.flag(Key("latent_moe_use_norm", False)),
        "zero_experts": zero,
    } | keys.get(EXPERTS_BESIDE, {})


def layers_with_experts(keys: Keys, experts: Experts, count: int) -> set[int]:
    """Return the layers with experts, by the first of the keys that say it."""
    for rule in (_by_types, _by_marks, _by_lists, _by_period):
        found = rule(keys, experts, count)
        if found is not None:
            return found
    first = keys.number(experts.first_dense)
    interval = keys.number(experts.interval)
    last = keys.number(Key("moe_layer_end_index", count - 1, least=-1))
    last = count - 1 if last == -1 else last
    return {layer for layer in range(first, min(last + 1, count)) if (layer + 1) % interval == 0}


def _by_types(keys: Keys, experts: Experts, count: int) -> set[int] | None:
    kinds = keys.sequence("mlp_layer_types", count, tuple(MLP_LAYER_TYPES))
    return None if kinds is None else {layer for layer, kind in enumerate(kinds) if MLP_LAYER_TYPES[kind]}


def _by_marks(keys: Keys, experts: Experts, count: int) -> set[int] | None:
    """Return the layers of `moe_layer_freq`: marks of all, or every how many have experts, from the first."""
    every = keys.get("moe_layer_freq")
    if type(every) is int and every > 0:
        return set(range(0, count, every)) - set(range(keys.number(experts.first_dense)))
    marks = keys.sequence("moe_layer_freq", count, (0, 1))
    return None if marks is None else {layer for layer, mark in enumerate(marks) if mark}


def _by_lists(keys: Keys, experts: Experts, count: int) -> set[int] | None:
    """Return the layers of `moe_layers_enum` or `moe_layers`, or all but `mlp_only_layers`."""
    enumerated = keys.get("moe_layers_enum")
    if isinstance(enumerated, str):
        found = [int(each) if each.strip().isdecimal() else -1 for each in enumerated.split(",")]
        if any(not 0 <= layer < count for layer in found):
            keys.fault("moe_layers_enum", f"expected layers from 0 to {count - 1}, found {show(enumerated)}")
        return set(found)
    if listed := keys.numbers("moe_layers", 0, count - 1):
        return set(listed)
    if (dense := keys.numbers("mlp_only_layers", 0, count - 1)) is None:
        return None
    interval = keys.number(experts.interval)
    return {layer for layer in range(count) if layer not in dense and (layer + 1) % interval == 0}


def _by_period(keys: Keys, experts: Experts, count: int) -> set[int] | None:
    """Return the layers by `expert_layer_period` and `expert_layer_offset`, of Jamba."""
    if keys.get("expert_layer_period") is None:
        return None
    period, offset = keys.number(Key("expert_layer_period")), keys.number(Key("expert_layer_offset", 0, least=0))
    return {layer for layer in range(count) if layer % period == offset}


def most_frequent(values: Iterable[dict]) -> list[dict]:
    """Return the distinct tables, the most frequent one first."""
    found: list[tuple[int, int, dict]] = []
    for value in values:
        for i, (minus, place, known) in enumerate(found):
            if known == value:
                found[i] = (minus - 1, place, known)
                break
        else:
            found.append((-1, len(found), value))
    return [value for _, _, value in sorted(found, key=lambda each: each[:2])]
