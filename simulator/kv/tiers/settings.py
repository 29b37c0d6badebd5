"""What tiers are built from."""
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from simulator.kv.tiers.fair_lane import FairLane
from simulator.kv.tiers.fifo_lane import FifoLane

GIB = 2**30
PAGE_BYTES = 4096       # to which vLLM rounds a chunk up
LANES = {"fifo": FifoLane, "fair": FairLane}

Gib = Annotated[float, Meta(gt=0, le=1e9)]
Rate = Annotated[float, Meta(gt=0, le=1e9)]


class Offloading(msgspec.Struct, frozen=True):
    """Host memory of one replica.

    policy : EvictionPolicy subclass.
    chunks : that fit.
    blocks_per_chunk : KV blocks of a chunk.
    store_threshold : how often a chunk must be offered before it is written; 0 and 1: at once.
    offload_prompt_only : outputs are not stored.
    block_bytes : of a KV block, on all accelerators together.
    """

    policy: type
    chunks: int
    blocks_per_chunk: int = 1
    store_threshold: int = 0
    offload_prompt_only: bool = True
    block_bytes: float = 0.0


class HostParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of all protocols that keep KV in host memory."""

    cpu_gib: Annotated[Gib, Meta(description=(
        "host memory of a replica, for all its accelerators; vLLM's --kv-offloading-size"))]
    blocks_per_chunk: Annotated[int, Meta(ge=1, le=2**20, description="KV blocks that are kept and go together")] = 1
    eviction_policy: Annotated[str, Meta(description="which chunks go when others come")] = "lru"
    parameters: Annotated[Any, Meta(extra={"kind": "kv_eviction"})] = None
    store_threshold: Annotated[int, Meta(ge=0, le=2**20, extra={"unit": "times"}, description=(
        "that a chunk must be offered before it is stored; 0 and 1: at once"))] = 0
    offload_prompt_only: Annotated[bool, Meta(description="outputs are not stored")] = True
    d2h_gb_per_s: Annotated[Rate | None, Meta(description=(
        "from each accelerator to the host; default: its PCIe link's"))] = None
    h2d_gb_per_s: Annotated[Rate | None, Meta(description="from the host to each accelerator; likewise")] = None
    first_byte_us: Annotated[float, Meta(ge=0, le=1e9, description="of each copy, before its first byte")] = 0.0
    contention: Annotated[Literal["fifo", "fair"], Meta(description=(
        "copies of one direction: one after the other, or at equal shares of the link"))] = "fifo"
    kv_bytes_per_token: Annotated[Annotated[float, Meta(gt=0, le=1e12)] | None, Meta(description=(
        "on all accelerators of a replica; default: the model's"))] = None
