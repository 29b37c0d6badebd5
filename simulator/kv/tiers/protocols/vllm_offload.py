"""`vllm_offload`: vLLM's OffloadingConnector."""
from simulator.kv.tiers.protocols.base import HostProtocol, chunks_in, levels_of
from simulator.kv.tiers.settings import HostParameters, Offloading


class VllmOffload(HostProtocol):
    """vLLM 0.32's `--kv-offloading-size` with its own backend.

    Exact for host memory alone. Levels below are of the kind that its TieringOffloadingSpec has; their cost is a model
    of this simulator, and vLLM's throttle of writes by their latency is not modelled. A lookup reads all chunks that
    only levels have, or none where the host lacks room; vLLM reads them until it is full. Layers with block tables of
    their own may have windows, and states that are kept where blocks end.
    """

    Parameters = HostParameters
    kinds = frozenset({"full_attention", "sliding_attention", "linear_attention"})

    @classmethod
    def own_faults(cls, parameters, site):
        """See HostProtocol."""
        groups = site.layers.groups if site.layers else ()
        if any(group.kind == "linear_attention" and not group.aligned for group in groups):
            yield "protocol", "it finds no states of linear attention without engine.enable_prefix_caching = true"

    @classmethod
    def contention(cls, parameters):
        """See HostProtocol."""
        return parameters.contention

    @classmethod
    def offloading(cls, parameters, site, kv):
        """See HostProtocol."""
        count = parameters.blocks_per_chunk
        return Offloading(
            policy=site.eviction, chunks=chunks_in(parameters.cpu_gib, count, kv), blocks_per_chunk=count,
            store_threshold=parameters.store_threshold, offload_prompt_only=parameters.offload_prompt_only,
            block_bytes=kv.block_bytes, levels=levels_of(parameters.secondary, count * kv.block_bytes))
