"""What tiers are built from."""
import math
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
    levels : below the host, LevelSettings each, the nearest first.
    promoted_tokens : what is read from these for a request is at least so much of its text.
    loads_in_step : loads are part of the iteration that admits their request; else this waits for them.
    overlaps : then those of one layer are hidden behind what the layers before compute; 0: none is; else layers.
    waits : a request waits for chunks that are being written; else they are not there.
    confirms : a step offers what had been computed when it was formed, and not what it computes itself.
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
    overlaps: int = 0
    waits: bool = True
    confirms: bool = False


class LevelSettings(msgspec.Struct, frozen=True):
    """A store below host memory.

    name : names it in the experiment.
    level : its number in results; 0 is the host.
    scope : "replica": each has one; "cluster": they share it.
    chunks : that fit.
    chunk_bytes : of a chunk.
    write_bytes_per_s, read_bytes_per_s : of its link.
    base_us : of each copy before its first byte.
    lease_s : a chunk that was read stays for so long.
    full_at : from this share on more go than must; 1: never.
    goes_at_once : the share that goes then.
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

    name: Annotated[str, Meta(min_length=1, description="of the level; of replicas that share one, the same")]
    scope: Annotated[Literal["replica", "cluster"], Meta(description=(
        "each replica has one, or all share one and its link"))] = "replica"
    capacity_gib: Annotated[float, Meta(gt=0, extra={"inf": True}, description=(
        "that fits; inf: everything"))] = math.inf
    read_gb_per_s: Annotated[Rate, Meta(description="into host memory, of all readers together")] = 7.0
    write_gb_per_s: Annotated[Rate, Meta(description="from host memory, likewise")] = 5.0
    base_us: Annotated[float, Meta(ge=0, le=1e9, description=(
        "of each copy before its first byte, in which it does not occupy the link"))] = 100.0


class LinkParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of all protocols that keep KV in host memory."""

    d2h_gb_per_s: Annotated[Rate | None, Meta(description=(
        "from each accelerator to the host; default: its PCIe link's"))] = None
    h2d_gb_per_s: Annotated[Rate | None, Meta(description="from the host to each accelerator; likewise")] = None
    first_byte_us: Annotated[float, Meta(ge=0, le=1e9, description="of each copy, before its first byte")] = 0.0
    kv_bytes_per_token: Annotated[Annotated[float, Meta(gt=0, le=1e12)] | None, Meta(description=(
        "on all accelerators of a replica, of all its layers; default: the model's"))] = None


class HostParameters(LinkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of `vllm_offload`."""

    cpu_gib: Annotated[Gib, Meta(description=(
        "host memory of a replica, for all its accelerators; vLLM's --kv-offloading-size"))]
    blocks_per_chunk: Annotated[int, Meta(ge=1, le=2**20, description="KV blocks that are kept and go together")] = 1
    eviction_policy: Annotated[str, Meta(description="which chunks go when others come")] = "lru"
    parameters: Annotated[Any, Meta(extra={"kind": "kv_eviction"})] = None
    store_threshold: Annotated[int, Meta(ge=0, le=2**20, extra={"unit": "times"}, description=(
        "that a chunk must be offered before it is stored; 0 and 1: at once"))] = 0
    offload_prompt_only: Annotated[bool, Meta(description="outputs are not stored")] = True
    contention: Annotated[Literal["fifo", "fair"], Meta(description=(
        "copies of one direction: one after the other, or at equal shares of the link"))] = "fifo"
    secondary: Annotated[tuple[Secondary, ...], Meta(max_length=8, description=(
        "levels below host memory, the nearest first"))] = ()
