"""What a protocol of KV tiers is: parameters, and how to make the tier of a replica from them."""
from collections.abc import Callable, Iterator

from simulator.kv.tiers.settings import GIB, LANES, PAGE_BYTES, HostParameters, Offloading


def chunks_of(parameters: HostParameters, kv) -> int:
    """Return the chunks that fit into the host memory of a replica.

    kv : simulator.domain.host_kv.HostKv; likewise below.

    A chunk is rounded up to whole pages. Source: vLLM 0.32.0, vllm/v1/kv_offload/cpu/spec.py.
    """
    pages = -(-parameters.blocks_per_chunk * kv.block_bytes // PAGE_BYTES)
    return int(parameters.cpu_gib * GIB // (pages * PAGE_BYTES))


def faults_of(parameters: HostParameters, kv) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong with it)."""
    if kv is None:
        yield "kv_bytes_per_token", "missing; expected a number, or [model] and [hardware]"
        return
    for key in ("d2h_gb_per_s", "h2d_gb_per_s"):
        if getattr(parameters, key) is None and not kv.link_bytes_per_s:
            yield key, "missing; expected a number, or hardware whose PCIe link is known"
    chunks = chunks_of(parameters, kv)
    if not 1 <= chunks <= 2**30:
        size = parameters.blocks_per_chunk * kv.block_bytes
        yield "cpu_gib", (f"{parameters.cpu_gib:g} GiB hold {chunks} chunks of {size:,.0f} bytes; expected at least "
                          "1, at most 2**30")


def lanes_of(parameters: HostParameters, kv) -> tuple:
    """Return the lanes of one replica, out of its accelerators and into them."""
    lane = LANES[parameters.contention]
    rates = (parameters.d2h_gb_per_s, parameters.h2d_gb_per_s)
    return tuple(lane(parameters.first_byte_us * 1e3, kv.rank_block_bytes / (
        kv.link_bytes_per_s if rate is None else rate * 1e9) * 1e9) for rate in rates)


def offloading_of(parameters: HostParameters, kv, policy: type) -> Offloading:
    """Return the settings of the tier."""
    return Offloading(policy=policy, chunks=chunks_of(parameters, kv), blocks_per_chunk=parameters.blocks_per_chunk,
                      store_threshold=parameters.store_threshold, offload_prompt_only=parameters.offload_prompt_only,
                      block_bytes=kv.block_bytes)


class Protocol:
    """Base of all protocols; `Parameters` is a HostParameters."""

    Parameters = HostParameters

    @classmethod
    def faults(cls, parameters: HostParameters, kv) -> Iterator[tuple[str, str]]:
        """Yield (key, what is wrong with it) where such a tier cannot be had."""
        return faults_of(parameters, kv)

    @classmethod
    def maker(cls, parameters: HostParameters, kv, policy: type) -> Callable:
        """Return what makes the tier of a replica, called with the workload.

        policy : the EvictionPolicy subclass that the parameters name.
        """
        raise NotImplementedError
