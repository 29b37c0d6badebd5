"""The kinds of groups of layers, and the unit of their blocks."""
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


def kinds_of(layers, unit, in_flight_tokens, max_model_len):
    """Return the LayerKinds of `layers`; groups that are equal are one kind.

    in_flight_tokens : computed in iterations that are not over, at most.
    """
    members = {}
    for number, group in enumerate(layers.groups):
        members.setdefault(group, []).append(number)
    retention = -1 if layers.retention_interval is None else layers.retention_interval
    kinds = []
    for group, numbers in members.items():
        reach = min(max(group.window - (group.kind == "sliding_attention"), 0) + in_flight_tokens, max_model_len)
        if group.kind == "full_attention":
            kind = FullAttention(group.block_size, unit, numbers)
        elif group.kind == "sliding_attention":
            kind = SlidingWindow(group.block_size, unit, numbers, group.window, reach, retention)
        elif group.kind == "chunked_attention":
            kind = ChunkedAttention(group.block_size, unit, numbers, group.window, reach)
        elif group.aligned:
            kind = AlignedState(group.block_size, unit, numbers, retention, group.checkpoint)
        else:
            kind = EndlessState(group.block_size, unit, numbers)
        kinds.append(kind)
    return kinds
