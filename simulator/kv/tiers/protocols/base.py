"""What a protocol of KV tiers is: parameters, and how to make the tier of a replica from them."""
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from simulator.domain.host_kv import HostKv, host_kv_of
from simulator.kv.tiers.settings import GIB, LANES, PAGE_BYTES, HostParameters, LevelSettings, Offloading

EVERYTHING = 2**40          # chunks, more than a run can write


class TierSite(NamedTuple):
    """What a tier is made for: the replicas of a pool.

    engine : parameters of their scheduler.
    block_size : tokens of a KV block.
    num_gpu_blocks : of a replica.
    tensor_parallel : accelerators that hold parts of each block.
    kv : what their KV blocks are to the host; None: no model and accelerator are named.
    eviction : the EvictionPolicy subclass that the parameters name; None: they name none.
    """

    engine: Any
    block_size: int
    num_gpu_blocks: int
    tensor_parallel: int
    kv: HostKv | None
    eviction: type | None = None


class Protocol:
    """Base of all protocols; a class with `Parameters`.

    scheduler : with which it goes.
    """

    scheduler = "vllm"

    @classmethod
    def conflicts(cls, engine, topology) -> Iterator[tuple[str, str]]:
        """Yield (section.key, what is wrong with it) of what it does not go with.

        engine, topology : sections of the experiment.
        """
        parameters = engine.parameters
        if parameters.vllm_version != "0.32":
            yield "engine.vllm_version", f'expected "0.32", found "{parameters.vllm_version}"'
        if parameters.speculative is not None:
            yield "engine.speculative", "expected none: its rules are not settled with drafts"
        if topology.pipeline_parallel > 1:
            yield "topology.pipeline_parallel", (
                f"expected 1, found {topology.pipeline_parallel}: its rules are not settled with stages")

    @classmethod
    def faults(cls, parameters, site: TierSite) -> Iterator[tuple[str, str]]:
        """Yield (key, what is wrong with it) where such a tier cannot be had."""
        return iter(())

    @classmethod
    def maker(cls, parameters, site: TierSite) -> Callable:
        """Return what makes the tier of a replica, called with the workload."""
        raise NotImplementedError


class HostProtocol(Protocol):
    """Base of protocols with host memory; `Parameters` is a HostParameters."""

    Parameters = HostParameters

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
        chunks = chunks_of(parameters, kv)
        if not 1 <= chunks <= 2**30:
            size = parameters.blocks_per_chunk * kv.block_bytes
            yield "cpu_gib", (f"{parameters.cpu_gib:g} GiB hold {chunks} chunks of {size:,.0f} bytes; expected at "
                              "least 1, at most 2**30")
        names = [each.name for each in parameters.secondary]
        for i, (each, level) in enumerate(zip(parameters.secondary, levels_of(parameters, kv), strict=True)):
            if each.name in names[:i]:
                yield f"secondary[{i}].name", f'two levels are named "{each.name}"'
            if level.chunks < 1:
                yield f"secondary[{i}].capacity_gib", (
                    f"{each.capacity_gib:g} GiB hold no chunk of {level.chunk_bytes:,.0f} bytes; expected more")


def kv_of(parameters: HostParameters, site: TierSite) -> HostKv | None:
    """Return what the KV blocks are to the host; None: nobody says."""
    if parameters.kv_bytes_per_token is None:
        return site.kv
    link = site.kv.link_bytes_per_s if site.kv else 0.0
    return host_kv_of(parameters.kv_bytes_per_token, site.tensor_parallel, site.block_size, link)


def chunks_of(parameters: HostParameters, kv: HostKv) -> int:
    """Return the chunks that fit into the host memory of a replica.

    A chunk is rounded up to whole pages. Source: vLLM 0.32.0, vllm/v1/kv_offload/cpu/spec.py.
    """
    pages = -(-parameters.blocks_per_chunk * kv.block_bytes // PAGE_BYTES)
    return int(parameters.cpu_gib * GIB // (pages * PAGE_BYTES))


def lanes_of(parameters: HostParameters, kv: HostKv) -> tuple:
    """Return the lanes of one replica, out of its accelerators and into them."""
    lane = LANES[parameters.contention]
    rates = (parameters.d2h_gb_per_s, parameters.h2d_gb_per_s)
    return tuple(lane(parameters.first_byte_us * 1e3, kv.rank_block_bytes / (
        kv.link_bytes_per_s if rate is None else rate * 1e9) * 1e9) for rate in rates)


def levels_of(parameters: HostParameters, kv: HostKv) -> tuple[LevelSettings, ...]:
    """Return the settings of the levels below host memory."""
    chunk_bytes = parameters.blocks_per_chunk * kv.block_bytes
    return tuple(LevelSettings(
        name=each.name, level=i, scope=each.scope, chunks=int(min(each.capacity_gib * GIB / chunk_bytes, EVERYTHING)),
        chunk_bytes=chunk_bytes, write_bytes_per_s=each.write_gb_per_s * 1e9,
        read_bytes_per_s=each.read_gb_per_s * 1e9, base_us=each.base_us)
        for i, each in enumerate(parameters.secondary, 1))


def offloading_of(parameters: HostParameters, kv: HostKv, policy: type) -> Offloading:
    """Return the settings of the tier.

    policy : the EvictionPolicy subclass that the parameters name.
    """
    return Offloading(policy=policy, chunks=chunks_of(parameters, kv), blocks_per_chunk=parameters.blocks_per_chunk,
                      store_threshold=parameters.store_threshold, offload_prompt_only=parameters.offload_prompt_only,
                      block_bytes=kv.block_bytes, levels=levels_of(parameters, kv))
