"""Groups of layers that share a block table, as vLLM's hybrid KV cache manager has them."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

GROUP_KINDS = ("full_attention", "sliding_attention", "chunked_attention", "linear_attention")


class LayerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of one kind with one block table.

    kind : of attention.
    block_size : tokens of a block; of states that are not kept for others, the longest text.
    window : tokens of the window or chunk; 0: there is none.
    aligned : of linear attention, states are kept where blocks end (mamba_cache_mode "align"); else a sequence has one.
    """

    kind: Literal["full_attention", "sliding_attention", "chunked_attention", "linear_attention"]
    block_size: Annotated[int, Meta(ge=1)]
    window: Annotated[int, Meta(ge=0)] = 0
    aligned: bool = False


class LayerGroups(msgspec.Struct, frozen=True, kw_only=True):
    """All groups of a model, in the order in which blocks are taken and given back.

    chunk_alignment : tokens at multiples of which chunks of a prompt end; 0: anywhere.
    retention_interval : tokens from one place where a window or state is kept for others to the next; 0: only at the end
        of a prompt and where a shared prefix ends; None: wherever a hit may end.
    """

    groups: tuple[LayerGroup, ...]
    chunk_alignment: int = 0
    retention_interval: int | None = 0
