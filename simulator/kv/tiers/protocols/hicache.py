"""`hicache`: SGLang's HiCache."""
from functools import partial
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from simulator.kv.radix_host import HostSettings
from simulator.kv.tiers.hicache import HicacheSettings, HicacheTier
from simulator.kv.tiers.lru import Lru
from simulator.kv.tiers.protocols.base import HostProtocol, blocks_of, kv_of, levels_of
from simulator.kv.tiers.settings import LANES, LinkParameters, Offloading, Secondary

PAGE_TOKENS = 64            # beside vLLM: SGLang's guides have pages of 64
TIMEOUT_S = 1.0             # prefetch_timeout_base of SGLang's storage backends
TIMEOUT_PER_KI_TOKEN_S = 0.25
UNBUILT = {
    "best_effort": "a prefetch would have to begin when its request arrives; here it begins with a later lookup",
    "timeout": "a request that stops waiting for a prefetch is not built",
}
WITH_TIMEOUT = ("prefetch_timeout_base_s", "prefetch_timeout_per_ki_token_s")


class HicacheParameters(LinkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Its options.

    Source: sglang at 07126812, docs/advanced_features/hicache_best_practices.md; 0.5.23, arg_groups/fields/memory.py.
    """

    ratio: Annotated[float, Meta(gt=0, le=1e6, extra={"unit": "blocks of the accelerator"}, description=(
        "host memory, as a multiple of the KV blocks of a replica; SGLang's --hicache-ratio"))] = 2.0
    page_tokens: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(extra={"unit": "tokens"}, description=(
        "size of a page, with scheduler vllm; default: 64. SGLang's --page-size is engine.block_size"))] = None
    write_policy: Annotated[Literal["write_through", "write_through_selective", "write_back"], Meta(description=(
        "write_through: stored when first computed; write_through_selective: when computed a second time; write_back: "
        "when evicted, with scheduler sglang"))] = "write_through"
    prefetch_policy: Annotated[Literal["wait_complete", "best_effort", "timeout"], Meta(description=(
        "wait_complete: a request waits for its whole prefetch from below the host; best_effort: it continues with the "
        "pages read so far; timeout: it does so after a time; the latter two with scheduler sglang"))] = "wait_complete"
    prefetch_threshold: Annotated[int, Meta(ge=0, le=2**30, extra={"unit": "tokens"}, description=(
        "fewer tokens are not fetched from below the host"))] = 256
    prefetch_timeout_base_s: Annotated[Annotated[float, Meta(ge=0, le=1e6)] | None, Meta(description=(
        "with timeout: longest wait of a request, constant part; default: 1"))] = None
    prefetch_timeout_per_ki_token_s: Annotated[Annotated[float, Meta(ge=0, le=1e6)] | None, Meta(description=(
        "with timeout: longest wait of a request, part per 1,024 tokens; default: 0.25"))] = None
    secondary: Annotated[tuple[Secondary, ...], Meta(max_length=8, description=(
        "levels below host memory, HiCache's L3; with scheduler sglang at most one"))] = ()


class Hicache(HostProtocol):
    """HiCache with SGLang's scheduler, or the part possible with vLLM's.

    With `sglang` it is the radix tree of that scheduler with copies in host memory: kv/radix_host.pyx has its rules,
    kv/tiers/hicache.pyx the timing of copies, kv/tiers/hicache_store.pyx the store below. Not validated by recorded
    runs.

    With `vllm`, modelled: pages; write_through and write_through_selective; loads within the iteration that admits
    their request, hidden layer by layer behind its computation: with n layers, load / n + max(0, load - compute)
    (1 - 1 / n) is left; pages of L3 are read into the host first, from 256 tokens on. The page used longest ago, by the
    end of requests, is evicted. Not modelled: its radix tree, batches of 128 pages, the least load of 10 tokens
    where a page has less. Refused: write_back, prefetch policies best_effort and timeout (HiCache's default).
    """

    Parameters = HicacheParameters
    capacity_key = "ratio"
    others = ("sglang",)
    refuses_disaggregated = MappingProxyType({"sglang": "HiCache with disaggregated prefill is not built"})
    why_cached = MappingProxyType({"sglang": "it copies nodes of the tree of prefixes"})
    unseen_with = MappingProxyType({"sglang": "following the nodes of its tree from outside is not built"})

    @classmethod
    def own_faults(cls, parameters, site):
        """See HostProtocol."""
        if site.scheduler == "sglang":
            yield from _faults_with_sglang(parameters, site)
            return
        yield from blocks_of(_page_tokens(parameters), "page_tokens", site)
        if parameters.write_policy == "write_back":
            yield "write_policy", "write_back is not built: blocks are stored when they are computed, not when they go"
        if parameters.prefetch_policy in UNBUILT:
            yield "prefetch_policy", f"{parameters.prefetch_policy}: {UNBUILT[parameters.prefetch_policy]}"
        for key in WITH_TIMEOUT:
            if getattr(parameters, key) is not None:
                yield key, 'goes with scheduler "sglang" and prefetch_policy = "timeout"'

    @classmethod
    def offloading(cls, parameters, site, kv):
        """See HostProtocol."""
        count = 1 if site.scheduler == "sglang" else _page_tokens(parameters) // site.block_size
        return Offloading(
            policy=Lru, chunks=int(parameters.ratio * site.num_gpu_blocks / count), blocks_per_chunk=count,
            block_bytes=kv.block_bytes, store_threshold=2 * (parameters.write_policy == "write_through_selective"),
            offload_prompt_only=False, promoted_tokens=parameters.prefetch_threshold, loads_in_step=True,
            overlaps=kv.num_layers, waits=False, levels=levels_of(parameters.secondary, count * kv.block_bytes))

    @classmethod
    def maker(cls, parameters, site):
        """See Protocol."""
        if site.scheduler != "sglang":
            return super().maker(parameters, site)
        kv = kv_of(parameters, site)
        return partial(_tier, _settings(parameters, site, kv), parameters, kv)


def _page_tokens(parameters: HicacheParameters) -> int:
    return PAGE_TOKENS if parameters.page_tokens is None else parameters.page_tokens


def _faults_with_sglang(parameters: HicacheParameters, site):
    if parameters.page_tokens not in (None, site.block_size):
        yield "page_tokens", (f"expected none, or engine.block_size = {site.block_size}, which is SGLang's page; found "
                              f"{parameters.page_tokens}")
    if parameters.secondary and parameters.write_policy == "write_back":
        yield "write_policy", ("expected another with [[kv_tiers.secondary]], found write_back: an evicted node may "
                               "have nodes below it that are being written, and then SGLang's server is out of memory")
    if len(parameters.secondary) > 1:
        yield "secondary", f"expected one, found {len(parameters.secondary)}: SGLang has one storage backend"
    if not parameters.secondary:
        for key, plain in (("prefetch_policy", "wait_complete"), ("prefetch_threshold", 256)):
            if getattr(parameters, key) != plain:
                yield key, "goes with [[kv_tiers.secondary]]: nothing is fetched without"
    for key in WITH_TIMEOUT:
        if getattr(parameters, key) is not None and not (
                parameters.secondary and parameters.prefetch_policy == "timeout"):
            yield key, 'goes with [[kv_tiers.secondary]] and prefetch_policy = "timeout"'


def _settings(parameters: HicacheParameters, site, kv):
    levels = levels_of(parameters.secondary, kv.block_bytes, writes_in_turn=True)
    base_s, per_ki_token_s = parameters.prefetch_timeout_base_s, parameters.prefetch_timeout_per_ki_token_s
    return HicacheSettings(
        host=HostSettings(tokens=int(parameters.ratio * site.num_gpu_blocks) * site.block_size,
                          write_policy=parameters.write_policy, has_store=bool(levels)),
        page_bytes=kv.block_bytes, layers=kv.num_layers, level=levels[0] if levels else None,
        prefetch_policy=parameters.prefetch_policy, prefetch_threshold=parameters.prefetch_threshold,
        timeout_base_s=TIMEOUT_S if base_s is None else base_s,
        timeout_per_ki_token_s=TIMEOUT_PER_KI_TOKEN_S if per_ki_token_s is None else per_ki_token_s)


def _tier(settings, parameters, kv, workload):
    rates = (parameters.d2h_gb_per_s, parameters.h2d_gb_per_s)
    return HicacheTier(settings, *(LANES["fifo"](parameters.first_byte_us * 1e3, kv.rank_block_bytes / (
        kv.link_bytes_per_s if rate is None else rate * 1e9) * 1e9) for rate in rates))
