"""Settings of tiers, and keys that several protocols have."""
import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from simulator.kv.tiers.fair_lane import FairLane
from simulator.kv.tiers.fifo_lane import FifoLane

GIB = 2**30
PAGE_BYTES = 4096       # vLLM rounds the bytes of a chunk up to a multiple
LANES = {"fifo": FifoLane, "fair": FairLane}

Gib = Annotated[float, Meta(gt=0, le=1e9)]
Rate = Annotated[float, Meta(gt=0, le=1e9)]


class Offloading(msgspec.Struct, frozen=True):
    """Host memory of one replica.

    policy : EvictionPolicy subclass.
    chunks : chunks that fit.
    blocks_per_chunk : KV blocks of a chunk.
    store_threshold : how often a chunk must be offered before it is written; 0 and 1: at once.
    offload_prompt_only : outputs are not stored.
    block_bytes : of a KV block, on all accelerators together.
    levels : below the host, LevelSettings each, the nearest first.
    promoted_tokens : fewer tokens of a request's text are not read from the levels.
    loads_in_step : loads are part of the iteration that admits their request; else the request waits for them.
    step_load_tokens : else: a step loads up to so many tokens for requests that it admits, and waits for them; 0: none.
    overlaps : with loads_in_step: number of layers, each hiding its successor's load behind its computation; 0: none.
    waits : a request waits for chunks that are being written; else they are not found.
    confirms : a step offers tokens computed before it was formed, not the tokens that it computes itself.
    offers_again : a request that was preempted offers all its chunks again; else those not offered yet.
    drops_last_chunk : the last chunk of a hit is left, and the last one of an output is not offered while it grows.
    needs_all_blocks : a chunk is not offered unless it has each block that a hit could need; else its last block.
    """

    policy: type
    chunks: int
    blocks_per_chunk: int = 1
    store_threshold: int = 0
    offload_prompt_only: bool = True
    block_bytes: float = 0.0
    levels: tuple["LevelSettings", ...] = ()
    promoted_tokens: int = 1
    loads_in_step: bool = False
    step_load_tokens: int = 0
    overlaps: int = 0
    waits: bool = True
    confirms: bool = False
    offers_again: bool = False
    drops_last_chunk: bool = False
    needs_all_blocks: bool = False


class LevelSettings(msgspec.Struct, frozen=True):
    """A store below host memory.

    name : its name in the experiment.
    level : its number in results; 0 is the host.
    scope : "replica": each replica has one; "cluster": all replicas share it.
    chunks : chunks that fit.
    chunk_bytes : of a chunk.
    write_bytes_per_s, read_bytes_per_s : of its link.
    base_us : of each copy before its first byte.
    lease_s : a chunk that was read is not evicted for so long.
    full_at : share in use from which on more chunks are evicted than needed; 1: never.
    goes_at_once : the share that is evicted then.
    writes_in_turn : writes go one after the other; else they share the link.
    """

    name: str
    level: int
    scope: str
    chunks: int
    chunk_bytes: float
    write_bytes_per_s: float
    read_bytes_per_s: float
    base_us: float = 0.0
    lease_s: float = 0.0
    full_at: float = 1.0
    goes_at_once: float = 0.0
    writes_in_turn: bool = False


class Secondary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A level below host memory, [[kv_tiers.secondary]]."""

    name: Annotated[str, Meta(min_length=1, description="name of the level; the same name in pools that share it")]
    scope: Annotated[Literal["replica", "cluster"], Meta(description=(
        "replica: each replica has one; cluster: all replicas share one and its link"))] = "replica"
    capacity_gib: Annotated[float, Meta(gt=0, extra={"inf": True}, description=(
        "capacity of the level; inf: unlimited"))] = math.inf
    read_gb_per_s: Annotated[Rate, Meta(description="into host memory, of all reads together")] = 7.0
    write_gb_per_s: Annotated[Rate, Meta(description="from host memory, of all writes together")] = 5.0
    base_us: Annotated[float, Meta(ge=0, le=1e9, description=(
        "of each copy before its first byte; the link is free meanwhile"))] = 100.0


class LinkParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of all protocols that keep KV in host memory."""

    d2h_gb_per_s: Annotated[Rate | None, Meta(description=(
        "from each accelerator to the host; default: rate of the accelerator's PCIe link"))] = None
    h2d_gb_per_s: Annotated[Rate | None, Meta(description=(
        "from the host to each accelerator; default: rate of the accelerator's PCIe link"))] = None
    first_byte_us: Annotated[float, Meta(ge=0, le=1e9, description="of each copy, before its first byte")] = 0.0
    kv_bytes_per_token: Annotated[Annotated[float, Meta(gt=0, le=1e12)] | None, Meta(description=(
        "KV of a token on all accelerators of a replica, of all its layers; default: the model's"))] = None


class HostParameters(LinkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of `vllm_offload`."""

    cpu_gib: Annotated[Gib, Meta(description=(
        "host memory of a replica, for all its accelerators; vLLM's --kv-offloading-size"))]
    blocks_per_chunk: Annotated[int, Meta(ge=1, le=2**20, description="KV blocks stored and evicted together")] = 1
    eviction_policy: Annotated[str, Meta(description="policy for the eviction of chunks from host memory")] = "lru"
    parameters: Annotated[Any, Meta(extra={"kind": "kv_eviction"})] = None
    store_threshold: Annotated[int, Meta(ge=0, le=2**20, extra={"unit": "times"}, description=(
        "how often a chunk must be offered before it is stored; 0 and 1: at once"))] = 0
    offload_prompt_only: Annotated[bool, Meta(description="outputs are not stored")] = True
    sync_load_budget_bytes: Annotated[int, Meta(ge=0, le=2**50, description=(
        "KV, on each accelerator, that a step may load for requests that it admits: it begins when that is loaded; "
        "requests beyond it wait for their loads; from vllm_version 0.33 on"))] = 0
    contention: Annotated[Literal["fifo", "fair"], Meta(description=(
        "copies of one direction: one after the other, or at equal shares of the link"))] = "fifo"
    secondary: Annotated[tuple[Secondary, ...], Meta(max_length=8, description=(
        "levels below host memory, the nearest first"))] = ()
