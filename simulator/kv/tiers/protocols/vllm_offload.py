"""`vllm_offload`: vLLM's OffloadingConnector."""
from functools import partial

from simulator.kv.tiers.offloading import OffloadingTier
from simulator.kv.tiers.protocols.base import HostProtocol, kv_of, lanes_of, offloading_of


class VllmOffload(HostProtocol):
    """What vLLM 0.32 does with `--kv-offloading-size` and its own backend."""

    @classmethod
    def maker(cls, parameters, site):
        """See Protocol."""
        kv = kv_of(parameters, site)
        return partial(_tier, parameters, kv, offloading_of(parameters, kv, site.eviction))


def _tier(parameters, kv, settings, workload):
    return OffloadingTier(settings, *lanes_of(parameters, kv))
