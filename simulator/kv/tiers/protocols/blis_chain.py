"""`blis_chain`: BLIS's chain of tiers, host memory and levels below it that readers and writers serve."""
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.kv.tiers.host_chain import HostChain
from simulator.kv.tiers.protocols.base import kv_of
from simulator.kv.tiers.protocols.blis_mirror import BlisProtocol
from simulator.kv.tiers.settings import GIB, Gib, Rate

Servers = Annotated[int, Meta(ge=1, le=2**16)]


class ServedLevel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A level below host memory, [[kv_tiers.secondary]].

    It is a disk of each replica, and its capacity is unlimited.
    """

    readers: Annotated[Servers, Meta(description=(
        "threads that read from the level, or write if no read waits; BLIS's n_read_threads"))] = 16
    writers: Annotated[Servers, Meta(description=(
        "threads that write to the level, or read if no write waits; BLIS's n_write_threads"))] = 16
    read_gb_per_s: Annotated[Rate, Meta(description=(
        "bandwidth of a read, for the part of a block on each accelerator; BLIS's read_bandwidth, in bytes/us"))]
    write_gb_per_s: Annotated[Rate, Meta(description=(
        "bandwidth of a write, for the part of a block on each accelerator; BLIS's write_bandwidth, in bytes/us"))]
    base_us: Annotated[int, Meta(ge=0, le=10**9, description="constant part of each copy; BLIS's base_latency")]
    full_depth: Annotated[int, Meta(ge=0, le=2**16, extra={"unit": "copies"}, description=(
        "copies of one direction from which on the full bandwidth is used; 0 and 1: always; BLIS's "
        "saturation_queue_depth"))] = 0
    first_frac: Annotated[float, Meta(gt=0, le=1, extra={"unit": "share"}, description=(
        "share of the bandwidth with a single copy; it rises linearly to 1 with full_depth copies; BLIS's "
        "single_transfer_fraction"))] = 1.0


class BlisChainParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """BLIS's options, of --kv-offload-config."""

    cpu_gib: Annotated[Gib, Meta(description=(
        "host memory of a replica, for all its accelerators; BLIS's cpu_bytes_to_use is of one accelerator"))]
    kv_bytes_per_token: Annotated[Annotated[float, Meta(gt=0, le=1e12)] | None, Meta(description=(
        "KV of a token on all accelerators of a replica; default: the model's"))] = None
    offload_prompt_only: Annotated[bool, Meta(description="blocks with outputs are not kept")] = True
    secondary: Annotated[tuple[ServedLevel, ...], Meta(max_length=8, description=(
        "levels below host memory, the nearest first"))] = ()


class BlisChain(BlisProtocol):
    """BLIS's `--kv-offload-config`.

    Or `kv_offload` in the header of a trace. Blocks are kept one by one, and the block used longest ago is evicted:
    BLIS refuses another blocks_per_chunk than 1 and another eviction_policy than lru. Not modelled:
    latency_jitter_stddev, which BLIS draws with Go's generator. In place of device_class and direct_io, set the rates
    and times that they imply.
    """

    Parameters = BlisChainParameters

    @classmethod
    def stores(cls, parameters):
        """See Protocol."""
        return []

    @classmethod
    def faults(cls, parameters, site):
        """See Protocol."""
        kv = kv_of(parameters, site)
        if kv is None:
            yield "kv_bytes_per_token", "missing; expected a number, or [model] and [hardware]"
        elif not 1 <= _blocks(parameters, kv) <= 2**30:
            yield "cpu_gib", (f"{parameters.cpu_gib:g} GiB hold {_blocks(parameters, kv)} blocks of "
                              f"{kv.block_bytes:,.0f} bytes; expected at least 1, at most 2**30")

    @classmethod
    def maker(cls, parameters, site):
        """See Protocol."""
        return partial(_tier, parameters, kv_of(parameters, site))


def _blocks(parameters, kv):
    return int(parameters.cpu_gib * GIB // kv.block_bytes)


def _tier(parameters, kv, workload):
    return HostChain(_blocks(parameters, kv), parameters.secondary, workload.demands,
                     parameters.offload_prompt_only, kv.block_bytes, kv.rank_block_bytes)
