"""`vllm_offload`: vLLM's OffloadingConnector."""
from typing import Any

from simulator.domain.vllm_versions import VllmBehaviour, behaviour_of
from simulator.kv.tiers.lru import Lru
from simulator.kv.tiers.lru_by_request import LruByRequest
from simulator.kv.tiers.protocols.base import HostProtocol, chunks_in, levels_of
from simulator.kv.tiers.settings import HostParameters, Offloading


class VllmOffload(HostProtocol):
    """vLLM's `--kv-offloading-size` with its own backend.

    Exact for host memory alone. Levels below are of the kind that its TieringOffloadingSpec has; their cost is a model
    of this simulator, and vLLM's throttle of writes by their latency is not modelled. A lookup reads all chunks that
    only levels have, or none where the host lacks room; vLLM reads them until it is full. Layers with block tables of
    their own may have windows, and states that are kept where blocks end.
    """

    Parameters = HostParameters
    kinds = frozenset({"full_attention", "sliding_attention", "linear_attention"})
    takes_drafts = True

    @classmethod
    def own_faults(cls, parameters, site):
        """See HostProtocol."""
        groups = site.layers.groups if site.layers else ()
        if any(group.kind == "linear_attention" and not group.aligned for group in groups):
            yield "protocol", "it finds no states of linear attention without engine.enable_prefix_caching = true"
        given, version = parameters.sync_load_budget_bytes, site.engine.vllm_version
        if given and "kv_tiers.sync_load_budget_bytes" not in behaviour_of(version).flags:
            yield "sync_load_budget_bytes", (
                f"expected 0, found {given}: vLLM {version} has no such option of its connector; 0.33 has it")

    @classmethod
    def contention(cls, parameters):
        """See HostProtocol."""
        return parameters.contention

    @classmethod
    def offloading(cls, parameters, site, kv):
        """See HostProtocol."""
        count = parameters.blocks_per_chunk
        return Offloading(
            **rules_of(site.engine, site.eviction), chunks=chunks_in(parameters.cpu_gib, count, kv),
            blocks_per_chunk=count,
            store_threshold=parameters.store_threshold, offload_prompt_only=parameters.offload_prompt_only,
            step_load_tokens=int(parameters.sync_load_budget_bytes // kv.token_bytes), block_bytes=kv.block_bytes,
            levels=levels_of(parameters.secondary, count * kv.block_bytes))


def rules_of(engine, eviction: type) -> dict[str, Any]:
    """Return fields of Offloading that follow from version and drafter, by name.

    engine : arguments of vLLM.
    eviction : EvictionPolicy subclass that is asked for.
    """
    behaviour = behaviour_of(engine.vllm_version)
    return {"policy": LruByRequest if eviction is Lru and behaviour.offload_ranks_requests else eviction,
            "drops_last_chunk": _drops_last_chunk(engine.speculative, behaviour),
            "offers_again": behaviour.offload_offers_again, "needs_all_blocks": behaviour.offload_needs_blocks}


def _drops_last_chunk(speculative, behaviour: VllmBehaviour) -> bool:
    """Return whether the last chunk of a hit is left, and that of an output is not offered before its end.

    The drafter writes its KV of the last place again when drafts are rejected. Source: vLLM 0.33.0 and 0.32.0,
    vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py, for groups that hold layers of the drafter;
    0.32 finds those of MTP alone.
    """
    return (speculative is not None and speculative.method in behaviour.offload_drafters
            and not speculative.disable_eagle_block_drop)
