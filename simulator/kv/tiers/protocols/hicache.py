"""`hicache`: SGLang's HiCache."""
from typing import Annotated, Literal

from msgspec import Meta

from simulator.kv.tiers.lru import Lru
from simulator.kv.tiers.protocols.base import HostProtocol, blocks_of, levels_of
from simulator.kv.tiers.settings import LinkParameters, Offloading, Secondary

UNBUILT = {
    "best_effort": "a prefetch would have to begin when its request arrives; here it does when that is looked up",
    "timeout": "a request that stops waiting for a prefetch is not built",
}


class HicacheParameters(LinkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Its options.

    Source: sglang at 07126812, docs/advanced_features/hicache_best_practices.md.
    """

    ratio: Annotated[float, Meta(gt=0, le=1e6, extra={"unit": "blocks of the accelerator"}, description=(
        "host memory, as a multiple of the KV blocks of a replica; SGLang's --hicache-ratio"))] = 2.0
    page_tokens: Annotated[int, Meta(ge=1, le=2**20, extra={"unit": "tokens"}, description=(
        "that are kept and go together; SGLang's --page-size"))] = 64
    write_policy: Annotated[Literal["write_through", "write_through_selective", "write_back"], Meta(description=(
        "stored when it is first computed, when it is so a second time; write_back is refused"))] = "write_through"
    prefetch_policy: Annotated[Literal["wait_complete", "best_effort", "timeout"], Meta(description=(
        "a request waits for what comes from below the host; the others are refused"))] = "wait_complete"
    prefetch_threshold: Annotated[int, Meta(ge=0, le=2**30, extra={"unit": "tokens"}, description=(
        "less than so much is not fetched from below the host"))] = 256
    secondary: Annotated[tuple[Secondary, ...], Meta(max_length=8, description=(
        "levels below host memory, HiCache's L3"))] = ()


class Hicache(HostProtocol):
    """What HiCache does, beside vLLM's scheduler.

    Modelled: pages; write_through and write_through_selective; loads within the iteration that admits their request,
    hidden layer by layer behind what it computes: with n layers, load / n + max(0, load - compute) (1 - 1 / n) is left;
    pages of L3 that come to the host first, from 256 tokens on. The page goes that was used longest ago, by the end of
    requests. Not modelled: its radix tree, batches of 128 pages, the least load of 10 tokens where a page has less.
    Refused: write_back, prefetch policies best_effort (HiCache's default) and timeout.
    """

    Parameters = HicacheParameters
    capacity_key = "ratio"

    @classmethod
    def own_faults(cls, parameters, site):
        """See HostProtocol."""
        yield from blocks_of(parameters.page_tokens, "page_tokens", site)
        if parameters.write_policy == "write_back":
            yield "write_policy", "write_back is not built: blocks are stored when they are computed, not when they go"
        if parameters.prefetch_policy in UNBUILT:
            yield "prefetch_policy", f"{parameters.prefetch_policy}: {UNBUILT[parameters.prefetch_policy]}"

    @classmethod
    def offloading(cls, parameters, site, kv):
        """See HostProtocol."""
        count = parameters.page_tokens // site.block_size
        return Offloading(
            policy=Lru, chunks=int(parameters.ratio * site.num_gpu_blocks / count), blocks_per_chunk=count,
            block_bytes=kv.block_bytes, store_threshold=2 * (parameters.write_policy == "write_through_selective"),
            offload_prompt_only=False, promoted_tokens=parameters.prefetch_threshold, loads_in_step=True,
            overlaps=kv.num_layers, waits=False, levels=levels_of(parameters.secondary, count * kv.block_bytes))
