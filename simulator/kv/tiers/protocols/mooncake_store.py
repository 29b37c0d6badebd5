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

    buffer_gib: Annotated[Gib, Meta(description="host memory of a replica, by way of which KV goes")] = 4.0
    pool_gib: Annotated[Gib, Meta(description="of the store, in the memory of all hosts together")]
    ssd_gib: Annotated[Gib | None, Meta(description="below it, shared, too; absent: there is none")] = None
    blocks_per_object: Annotated[int, Meta(ge=1, le=2**20, description="KV blocks that are kept and go together")] = 1
    pool_gb_per_s: Annotated[Rate, Meta(description=(
        "to the store, and from it, of all replicas together; default: 8 links of 25 GB/s at 0.73 of it"))] = 146.0
    pool_base_us: Annotated[float, Meta(ge=0, le=1e9, description="of each copy before its first byte")] = 380.0
    ssd_gb_per_s: Annotated[Rate, Meta(description="to the disks, and from them, of all together")] = 7.0
    lease_s: Annotated[float, Meta(ge=0, le=1e9, description="after it was read an object stays so long")] = 10.0
    eviction_high_watermark: Annotated[Share, Meta(description="from this share on more objects go than must")] = 0.9
    eviction_ratio: Annotated[Share, Meta(description="the share that goes then")] = 0.05


class MooncakeStore(HostProtocol):
    """What Mooncake Store does as the shared store of many engines.

    Modelled: one pool that all replicas read and write over one link, in equal shares; least recently used objects go,
    5 % at once when 90 % is full, none under a lease; disks below it, which get the same writes. Between a replica and
    the store KV goes by way of a buffer in its host memory, which keeps what it can and works as `vllm_offload`; the
    store itself needs none with RDMA from accelerators. Rate and base are a fit to measured transfers of its engine
    (Mooncake, docs/source/performance/vllm/vllm-v1-pd-performance.md). Not modelled: which host holds an object,
    replicas of objects, soft pins (30 minutes; an application asks for them).
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
