"""`lmcache`: LMCache in host memory of a replica, on disk and at a server."""
from typing import Annotated

from msgspec import Meta

from simulator.kv.tiers.protocols.base import HostProtocol, blocks_of, levels_of, plain_lru
from simulator.kv.tiers.settings import Gib, LinkParameters, Secondary


class LmcacheParameters(LinkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Its options and defaults. Source: LMCache at 000620e3, lmcache/v1/config.py."""

    cpu_gib: Annotated[Gib, Meta(description="host memory of a replica; LMCache's max_local_cpu_size")] = 5.0
    chunk_tokens: Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "tokens"}, description=(
        "that are kept and go together; LMCache's chunk_size"))] = 256
    save_decode_cache: Annotated[bool, Meta(description="outputs are stored, too")] = False
    async_loading: Annotated[bool, Meta(description=(
        "a request waits for what is loaded; else this is part of the iteration that admits it"))] = False
    secondary: Annotated[tuple[Secondary, ...], Meta(max_length=8, description=(
        "levels below host memory, LMCache's local disk and remote server, the nearest first"))] = ()


class Lmcache(HostProtocol):
    """What LMCache does as the KV connector of a vLLM engine.

    Modelled: whole chunks of 256 tokens, written through to every level; loads within the iteration that admits their
    request, which takes longer by them; a chunk that is being written is not there, and nobody waits for it; at least
    one token of a text is computed. The chunk goes that was used longest ago, by the end of requests. What the host
    lacks comes to it first, and its request waits for that, as under async_loading. Not modelled: its lookup server and
    the time that lookups take, layerwise transfers, compression, blending.
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
