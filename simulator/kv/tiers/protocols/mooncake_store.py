"""`mooncake_store`: Mooncake's distributed store, in the memory of many hosts."""
from typing import Annotated

from msgspec import Meta

from simulator.kv.tiers.protocols.base import HostProtocol, level_of, plain_lru
from simulator.kv.tiers.settings import Gib, LinkParameters, Rate

Share = Annotated[float, Meta(ge=0, le=1)]


class MooncakeStoreParameters(LinkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Its options and defaults.

    Source: Mooncake at 3b5a5941, mooncake-store/include/types.h.
    """

    buffer_gib: Annotated[Gib, Meta(description="host memory of a replica, a buffer on the way to the store")] = 4.0
    pool_gib: Annotated[Gib, Meta(description="capacity of the store, in the memory of all hosts together")]
    ssd_gib: Annotated[Gib | None, Meta(description="shared disks below the store; absent: there are none")] = None
    blocks_per_object: Annotated[int, Meta(ge=1, le=2**20, description="KV blocks stored and evicted together")] = 1
    pool_gb_per_s: Annotated[Rate, Meta(description=(
        "in each direction, to and from the store, of all replicas together; default: 8 links of 25 GB/s at 0.73 of "
        "it"))] = 146.0
    pool_base_us: Annotated[float, Meta(ge=0, le=1e9, description="of each copy before its first byte")] = 380.0
    ssd_gb_per_s: Annotated[Rate, Meta(description="in each direction, to and from all disks together")] = 7.0
    lease_s: Annotated[float, Meta(ge=0, le=1e9, description="how long an object stays after a read")] = 10.0
    eviction_high_watermark: Annotated[Share, Meta(description=(
        "share of the store in use above which more objects are evicted than needed"))] = 0.9
    eviction_ratio: Annotated[Share, Meta(description="share of the store that is evicted then")] = 0.05


class MooncakeStore(HostProtocol):
    """Mooncake Store as the shared store of many engines.

    Modelled: one pool that all replicas read and write over one link, in equal shares; least recently used objects are
    evicted, 5 % at once when 90 % is full, none under a lease; disks below it, which get the same writes. Between a
    replica and the store KV passes through a buffer in its host memory, which keeps chunks while it can and works as
    `vllm_offload`; the store itself needs none with RDMA from accelerators. Rate and base are a fit to measured
    transfers of its engine (Mooncake, docs/source/performance/vllm/vllm-v1-pd-performance.md). Not modelled: the host
    of each object, replicas of objects, soft pins (30 minutes; an application requests them).
    """

    Parameters = MooncakeStoreParameters
    capacity_key = "buffer_gib"

    @classmethod
    def stores(cls, parameters):
        """See Protocol."""
        return ["pool"] + ["ssd"] * (parameters.ssd_gib is not None)

    @classmethod
    def offloading(cls, parameters, site, kv):
        """See HostProtocol."""
        chunk_bytes, rate = parameters.blocks_per_object * kv.block_bytes, parameters.pool_gb_per_s * 1e9
        rules = {"scope": "cluster", "base_us": parameters.pool_base_us}
        levels = [level_of("pool", 1, parameters.pool_gib, chunk_bytes, write_bytes_per_s=rate, read_bytes_per_s=rate,
                           lease_s=parameters.lease_s, full_at=parameters.eviction_high_watermark,
                           goes_at_once=parameters.eviction_ratio, **rules)]
        if parameters.ssd_gib is not None:
            rate = parameters.ssd_gb_per_s * 1e9
            levels.append(level_of("ssd", 2, parameters.ssd_gib, chunk_bytes, write_bytes_per_s=rate,
                                   read_bytes_per_s=rate, **rules))
        return plain_lru(parameters.buffer_gib, parameters.blocks_per_object, kv, levels=tuple(levels))
