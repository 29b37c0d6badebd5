"""KV events as vLLM writes them: blocks that enter and leave a prefix cache.

Fields, order and encodings: vLLM 0.33.0, distributed/kv_events.py, as specs/serve.md quotes them, section 9. Source of
extra_keys, a tuple or None by block: core/block_pool.py there, cache_full_blocks.
"""
from collections.abc import Sequence
from typing import Any

import msgspec

GPU = "GPU"                     # where blocks are
GROUP = 0                       # of layers: replicas have one


class BlockStored(msgspec.Struct, tag=True, omit_defaults=True):
    """Blocks that follow each other in a text, and can be found from now on."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    lookahead_token_ids: list[int] | None = None


class BlockRemoved(msgspec.Struct, tag=True, omit_defaults=True):
    """Blocks that cannot be found any more."""

    block_hashes: list[int]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True):
    """The cache is empty."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


def as_map(ts: float, events: Sequence[Event], rank: int) -> bytes:
    """Return the payload of a message, its events as maps (vLLM 0.33)."""
    return msgspec.msgpack.encode((ts, events, rank))


def as_array(ts: float, events: Sequence[Event], rank: int) -> bytes:
    """Return the payload of a message, its events as arrays (older versions)."""
    return msgspec.msgpack.encode((ts, [_row(event) for event in events], rank))


def _row(event: Event) -> list[Any]:
    match event:
        case BlockStored():
            return ["BlockStored", event.block_hashes, event.parent_block_hash, event.token_ids, event.block_size,
                    event.lora_id, event.medium, event.lora_name]
        case BlockRemoved():
            return ["BlockRemoved", event.block_hashes, event.medium]
    return ["AllBlocksCleared"]


ENCODINGS = {"map": as_map, "array": as_array}
