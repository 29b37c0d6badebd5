"""`kvbm`: Dynamo's KV block manager, as its mocker models it."""
from typing import Annotated

from msgspec import Meta

from simulator.kv.tiers.protocols.base import HostProtocol, level_of, plain_lru
from simulator.kv.tiers.settings import Gib, LinkParameters, Rate


class KvbmParameters(LinkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Its options and defaults.

    Source: ai-dynamo/dynamo at 7b9ab971, lib/mocker/src/kvbm_offload/config.rs.
    """

    g2_gib: Annotated[Gib, Meta(description="host memory of a replica")]
    g3_gib: Annotated[Gib | None, Meta(description="disk below host memory; absent: there is none")] = None
    g3_is_shared: Annotated[bool, Meta(description="all replicas share the disk and its link")] = True
    d2h_gb_per_s: Annotated[Rate | None, Meta(description="from each accelerator to the host")] = 14.0
    h2d_gb_per_s: Annotated[Rate | None, Meta(description="from the host to each accelerator")] = 14.0
    g2_g3_gb_per_s: Annotated[Rate, Meta(description="in each direction between host memory and disk")] = 7.0


class Kvbm(HostProtocol):
    """Offloading of Dynamo's mocker.

    Modelled: copies that share a link equally, in each direction; G3 below G2, with writes one after the other; blocks
    of G3 are read into G2 first. The block used longest ago, by the end of requests, is evicted. As with `vllm_offload`
    a request waits for its load, and blocks of a request that has ended are free at once: an iteration that reuses a
    block still being read waits. The mocker keeps the block occupied until then, and cuts copies into batches of 32
    blocks. Not modelled: G4.
    """

    Parameters = KvbmParameters
    capacity_key = "g2_gib"

    @classmethod
    def stores(cls, parameters):
        """See Protocol."""
        return ["g3"] * (parameters.g3_gib is not None and parameters.g3_is_shared)

    @classmethod
    def contention(cls, parameters):
        """See HostProtocol."""
        return "fair"

    @classmethod
    def offloading(cls, parameters, site, kv):
        """See HostProtocol."""
        levels, rate = (), parameters.g2_g3_gb_per_s * 1e9
        if parameters.g3_gib is not None:
            scope = "cluster" if parameters.g3_is_shared else "replica"
            levels = (level_of("g3", 1, parameters.g3_gib, kv.block_bytes, scope=scope, write_bytes_per_s=rate,
                               read_bytes_per_s=rate, writes_in_turn=True),)
        return plain_lru(parameters.g2_gib, 1, kv, levels=levels)
