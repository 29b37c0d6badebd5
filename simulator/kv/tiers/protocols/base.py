"""Base of the protocols of KV tiers: parameters, and how to make the tier of a replica from them."""
from collections.abc import Callable, Iterator
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from simulator.domain.host_kv import HostKv, host_kv_of
from simulator.domain.layer_groups import LayerGroups
from simulator.kv.tiers.fair_lane import FairLane
from simulator.kv.tiers.group_offloading import GroupOffloadingTier
from simulator.kv.tiers.lru import Lru
from simulator.kv.tiers.offloading import OffloadingTier
from simulator.kv.tiers.settings import GIB, LANES, PAGE_BYTES, LevelSettings, LinkParameters, Offloading

EVERYTHING = 2**40          # chunks, more than a run can write


class TierSite(NamedTuple):
    """The replicas of a pool, for which tiers are made.

    engine : parameters of their scheduler.
    block_size : tokens of a KV block.
    num_gpu_blocks : of a replica.
    tensor_parallel : accelerators that hold parts of each block.
    kv : HostKv, size of their KV blocks and rate of their link; None: no model and accelerator are named.
    layers : LayerGroups, which have block tables of their own; None: all layers share one.
    eviction : the EvictionPolicy subclass that the parameters name; None: they name none.
    scheduler : name of their scheduler.
    """

    engine: Any
    block_size: int
    num_gpu_blocks: int
    tensor_parallel: int
    kv: HostKv | None
    layers: LayerGroups | None = None
    eviction: type | None = None
    scheduler: str = "vllm"


class Protocol:
    """Base of all protocols; a class with `Parameters`.

    scheduler : name of the scheduler that it supports. others : further ones.
    why_not : why a scheduler is not supported, by name.
    kinds : kinds of layer groups with block tables of their own that it supports.
    why_unseen : why no router sees the chunks of such a tier; "": routers that look at tiers see them.
    unseen_with : the same for some schedulers, by name.
    refuses_disaggregated : why disaggregated prefill is not supported with a scheduler, by name.
    why_cached : why engine.enable_prefix_caching must be true with a scheduler, by name.
    takes_drafts : its rules are settled with speculative decoding.
    why_compat : why engine.upstream_compat must be true; "": it need not.
    """

    scheduler = "vllm"
    others = ()
    why_not = MappingProxyType({"sglang": (
        "a tier needs a hash for each block; its radix cache has pages along edges of a tree, without hashes")})
    why_unseen = ""
    unseen_with = MappingProxyType({})
    refuses_disaggregated = MappingProxyType({})
    why_cached = MappingProxyType({})
    why_compat = ""
    kinds = frozenset()
    takes_drafts = False

    @classmethod
    def faults(cls, parameters, site: TierSite) -> Iterator[tuple[str, str]]:
        """Yield (key, message) for keys with which the tier cannot be made."""
        return iter(())

    @classmethod
    def stores(cls, parameters) -> list[str]:
        """Return the names of the stores that replicas share."""
        return [each.name for each in getattr(parameters, "secondary", ()) if each.scope == "cluster"]

    @classmethod
    def maker(cls, parameters, site: TierSite) -> Callable:
        """Return a function that makes the tier of a replica, called with the workload."""
        raise NotImplementedError


class HostProtocol(Protocol):
    """Base of protocols with host memory; `Parameters` is a LinkParameters.

    capacity_key : the key for the size of host memory.
    """

    capacity_key = "cpu_gib"

    @classmethod
    def offloading(cls, parameters, site: TierSite, kv: HostKv) -> Offloading:
        """Return the settings of the tier."""
        raise NotImplementedError

    @classmethod
    def contention(cls, parameters) -> str:
        """Return how copies share the link of the accelerators: fifo or fair."""
        return "fifo"

    @classmethod
    def faults(cls, parameters, site):
        """See Protocol."""
        kv = kv_of(parameters, site)
        if kv is None:
            yield "kv_bytes_per_token", "missing; expected a number, or [model] and [hardware]"
            return
        for key in ("d2h_gb_per_s", "h2d_gb_per_s"):
            if getattr(parameters, key) is None and not kv.link_bytes_per_s:
                yield key, "missing; expected a number, or hardware whose PCIe link is known"
        found = [*cls.own_faults(parameters, site)]
        yield from found
        if found:
            return
        settings = cls.offloading(parameters, site, kv)
        if not 1 <= settings.chunks <= 2**30:
            size, key = settings.blocks_per_chunk * kv.block_bytes, cls.capacity_key
            what = f"{getattr(parameters, key):g} {'GiB' if key.endswith('gib') else 'times the blocks'}"
            yield key, f"{what} hold {settings.chunks} chunks of {size:,.0f} bytes; expected at least 1, at most 2**30"
        yield from _level_faults(parameters, settings)

    @classmethod
    def own_faults(cls, parameters, site: TierSite) -> Iterator[tuple[str, str]]:
        """Yield (key, message) for faults of this protocol alone."""
        return iter(())

    @classmethod
    def maker(cls, parameters, site):
        """See Protocol."""
        kv = kv_of(parameters, site)
        tier = GroupOffloadingTier if site.layers else OffloadingTier
        return partial(_tier, tier, cls.offloading(parameters, site, kv), parameters, kv,
                       LANES[cls.contention(parameters)])


def _tier(tier, settings, parameters, kv, lane, workload):
    rates = (parameters.d2h_gb_per_s, parameters.h2d_gb_per_s)
    lanes = [lane(parameters.first_byte_us * 1e3, kv.rank_block_bytes / (
        kv.link_bytes_per_s if rate is None else rate * 1e9) * 1e9) for rate in (*rates, rates[1])]
    if settings.step_load_tokens == 0:
        return tier(settings, *lanes[:2])
    return tier(settings, *lanes[:2], lanes[1] if isinstance(lanes[1], FairLane) else lanes[2])


def _level_faults(parameters, settings: Offloading) -> Iterator[tuple[str, str]]:
    levels = getattr(parameters, "secondary", ())
    names = [each.name for each in levels]
    for i, level in enumerate(settings.levels):
        if names and names[i] in names[:i]:
            yield f"secondary[{i}].name", f'two levels are named "{names[i]}"'
        if level.chunks < 1:
            where = f"secondary[{i}].capacity_gib" if names else f"{level.name}_gib"
            yield where, f"it holds no chunk of {level.chunk_bytes:,.0f} bytes; expected more"


def kv_of(parameters: LinkParameters, site: TierSite) -> HostKv | None:
    """Return size of the KV blocks and rate of the host link; None: both unknown."""
    if parameters.kv_bytes_per_token is None:
        return site.kv
    link = site.kv.link_bytes_per_s if site.kv else 0.0
    block_size, num_groups = site.block_size, 1
    if site.layers:                                     # a block has a page for a layer of any of the groups
        num_groups = len(site.layers.groups)
        block_size = max(group.block_size for group in site.layers.groups)
    return host_kv_of(parameters.kv_bytes_per_token, site.tensor_parallel, block_size, link, num_groups)


def chunks_in(gib: float, blocks_per_chunk: int, kv: HostKv) -> int:
    """Return the chunks that fit into the host memory of a replica.

    A chunk is rounded up to whole pages. Source: vLLM 0.32.0, vllm/v1/kv_offload/cpu/spec.py.
    """
    pages = -(-blocks_per_chunk * kv.block_bytes // PAGE_BYTES)
    return int(gib * GIB // (pages * PAGE_BYTES))


def level_of(name: str, level: int, gib: float, chunk_bytes: float, **settings) -> LevelSettings:
    """Return the settings of a level below host memory.

    settings : further fields of LevelSettings.
    """
    return LevelSettings(name=name, level=level, chunks=int(min(gib * GIB / chunk_bytes, EVERYTHING)),
                         chunk_bytes=chunk_bytes, **settings)


def levels_of(secondary, chunk_bytes: float, writes_in_turn: bool = False) -> tuple[LevelSettings, ...]:
    """Return the settings of the levels below host memory, of a Secondary each.

    writes_in_turn : writes to a level of the replica's own go one after the other.
    """
    return tuple(level_of(
        each.name, i, each.capacity_gib, chunk_bytes, scope=each.scope, write_bytes_per_s=each.write_gb_per_s * 1e9,
        read_bytes_per_s=each.read_gb_per_s * 1e9, base_us=each.base_us,
        writes_in_turn=writes_in_turn and each.scope == "replica") for i, each in enumerate(secondary, 1))


def blocks_of(tokens: int, key: str, site: TierSite) -> Iterator[tuple[str, str]]:
    """Yield (key, message) unless chunks of `tokens` tokens are whole blocks."""
    if tokens % site.block_size:
        yield key, f"expected a multiple of engine.block_size = {site.block_size}, found {tokens}"


def plain_lru(gib: float, blocks_per_chunk: int, kv: HostKv, **settings) -> Offloading:
    """Return settings with `gib` GiB of host memory and the policy lru.

    settings : further fields of Offloading.
    """
    return Offloading(policy=Lru, chunks=chunks_in(gib, blocks_per_chunk, kv), blocks_per_chunk=blocks_per_chunk,
                      block_bytes=kv.block_bytes, **settings)
