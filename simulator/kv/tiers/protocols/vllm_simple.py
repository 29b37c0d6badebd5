"""`vllm_simple`: vLLM's SimpleCPUOffloadConnector."""
from typing import Annotated

from msgspec import Meta

from simulator.kv.tiers.free_queue import FreeQueue
from simulator.kv.tiers.protocols.base import HostProtocol, chunks_in
from simulator.kv.tiers.settings import Gib, LinkParameters, Offloading


class VllmSimpleParameters(LinkParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Its options.

    Source: vLLM 0.32.0, vllm/distributed/kv_transfer/kv_connector/v1/simple_cpu_offload_connector.py.
    """

    cpu_gib: Annotated[Gib, Meta(description="host memory of a replica, for all its accelerators")] = 8.0
    lazy_offload: Annotated[bool, Meta(description="store blocks that are about to be evicted; not supported")] = False


class VllmSimple(HostProtocol):
    """vLLM 0.32's `--kv-offloading-size` with VLLM_USE_SIMPLE_KV_OFFLOAD.

    Modelled: single blocks, outputs too, stored once their computation is known to have ended, a step later than
    `vllm_offload` stores them, and the rest when the request ends; a block that is being stored is not found, and no
    request waits for it; the block stored or loaded longest ago is evicted. Copies are launched, and reported, as those
    of `vllm_offload`. Not validated by recorded runs. Refused: lazy_offload, which follows a cursor through the free
    queue of the accelerator's blocks. Not offered: its disk backend.
    """

    Parameters = VllmSimpleParameters

    @classmethod
    def own_faults(cls, parameters, site):
        """See HostProtocol."""
        if parameters.lazy_offload:
            yield "lazy_offload", (
                "expected false: storing by a cursor through the free queue of the blocks is not built")

    @classmethod
    def offloading(cls, parameters, site, kv):
        """See HostProtocol."""
        return Offloading(policy=FreeQueue, chunks=chunks_in(parameters.cpu_gib, 1, kv), offload_prompt_only=False,
                          block_bytes=kv.block_bytes, waits=False, confirms=True)
