"""The kinds of groups of layers, and the unit of their blocks."""
from typing import NamedTuple

from msgspec.structs import replace

from simulator.kv.hybrid.chunked import ChunkedAttention
from simulator.kv.hybrid.full import FullAttention
from simulator.kv.hybrid.mamba import AlignedState, EndlessState
from simulator.kv.hybrid.sliding import SlidingWindow


def unit_of(layers, enable_prefix_caching):
    """Return the tokens of which all blocks are divisors: vLLM's scheduler block size.

    layers : LayerGroups. Without prefix caching a state that a sequence has for life has no say.
    """
    groups = tuple(group for group in layers.groups
                   if enable_prefix_caching or group.kind != "linear_attention" or group.aligned)
    return replace(layers, groups=groups or layers.groups).unit


class HitRules(NamedTuple):
    """Rules of an engine for hits.

    hashes_ahead : tokens behind a block in its hash.
    repeats_last_states : vLLM 0.32: the last state of a prompt cannot be hit as long as its sequence holds it.
    cut : of groups with layers of a drafter, see layer_kind.pxd.
    """

    hashes_ahead: int = 0
    repeats_last_states: bool = True
    cut: int = 0


def kinds_of(layers, unit, in_flight_tokens, max_model_len, cut=0):
    """Return the LayerKinds of `layers`; groups that are equal are one kind.

    in_flight_tokens : computed in iterations that are not over, at most.
    cut : see HitRules; of all kinds if no group is known to hold layers of a drafter. Source: vLLM 0.33.0,
        KVCacheCoordinator and SingleTypeKVCacheManager.cache_blocks.
    """
    members = {}
    for number, group in enumerate(layers.groups):
        members.setdefault(replace(group, has_drafter=False), []).append(number)
    marked = {replace(group, has_drafter=False) for group in layers.groups if group.has_drafter} or set(members)
    retention = -1 if layers.retention_interval is None else layers.retention_interval
    kinds = []
    for group, numbers in members.items():
        of_group = cut if group in marked else 0
        reach = min(max(group.window - (group.kind == "sliding_attention"), 0) + in_flight_tokens, max_model_len)
        if group.kind == "full_attention":
            kind = FullAttention(group.block_size, unit, numbers, of_group)
        elif group.kind == "sliding_attention":
            kind = SlidingWindow(group.block_size, unit, numbers, group.window, reach, retention, of_group)
        elif group.kind == "chunked_attention":
            kind = ChunkedAttention(group.block_size, unit, numbers, group.window, reach)
        elif group.aligned:
            kind = AlignedState(group.block_size, unit, numbers, retention, group.checkpoint, group.drafts,
                                of_group)
        else:
            kind = EndlessState(group.block_size, unit, numbers, group.drafts)
        kinds.append(kind)
    return kinds
