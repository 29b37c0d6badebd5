"""`lmcache`: LMCache in host memory of a replica, on disk and at a server."""
from typing import Annotated

from msgspec import Meta

from simulator.kv.tiers.protocols.base import HostProtocol, blocks_of, levels_of, plain_lru
from simulator.kv.tiers.settings import Gib, LinkParameters, Secondary


class LmcacheParameters(LinkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Its options and defaults. Source: LMCache at 000620e3, lmcache/v1/config.py."""

    cpu_gib: Annotated[Gib, Meta(description="host memory of a replica; LMCache's max_local_cpu_size")] = 5.0
    chunk_tokens: Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "tokens"}, description=(
        "size of a chunk, which is stored and evicted whole; LMCache's chunk_size"))] = 256
    save_decode_cache: Annotated[bool, Meta(description="outputs are stored, too")] = False
    async_loading: Annotated[bool, Meta(description=(
        "a request waits for its load; else the load is part of the iteration that admits it"))] = False
    secondary: Annotated[tuple[Secondary, ...], Meta(max_length=8, description=(
        "levels below host memory, LMCache's local disk and remote server, the nearest first"))] = ()


class Lmcache(HostProtocol):
    """LMCache as the KV connector of a vLLM engine.

    Modelled: whole chunks of 256 tokens, written through to every level; loads within the iteration that admits their
    request, which takes longer by them; a chunk that is being written is not found, and no request waits for it; at
    least one token of a text is computed. The chunk used longest ago, by the end of requests, is evicted. Chunks that
    the host lacks are read into it first, and their request waits for that, as under async_loading. Not modelled: its
    lookup server and the time that lookups take, layerwise transfers, compression, blending.
    """

    Parameters = LmcacheParameters

    @classmethod
    def own_faults(cls, parameters, site):
        """See HostProtocol."""
        return blocks_of(parameters.chunk_tokens, "chunk_tokens", site)

    @classmethod
    def offloading(cls, parameters, site, kv):
        """See HostProtocol."""
        count = parameters.chunk_tokens // site.block_size
        return plain_lru(
            parameters.cpu_gib, count, kv, offload_prompt_only=not parameters.save_decode_cache, waits=False,
            loads_in_step=not parameters.async_loading, levels=levels_of(parameters.secondary, count * kv.block_bytes))
