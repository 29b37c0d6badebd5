"""`blis_offload`: BLIS's tier in host memory up to v0.6.9, to which blocks are moved above a threshold."""
from functools import partial
from typing import Annotated

from msgspec import Meta

from simulator.kv.tiers.host_offload import HostOffload
from simulator.kv.tiers.protocols.blis_mirror import BlisProtocol, TransferParameters, reload_ns_of


class BlisOffloadParameters(TransferParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """BLIS's options up to v0.6.9."""

    offload_threshold: Annotated[float, Meta(ge=0, le=1, extra={"unit": "share"}, description=(
        "of KV blocks in use; above it a request that gives up its blocks moves free ones to the host; 1: never; "
        "BLIS's --kv-offload-threshold"))] = 0.9


class BlisOffload(BlisProtocol):
    """BLIS's `--kv-cpu-blocks` before it had a mirror.

    Two habits of BLIS are modelled: a block that replaces another in host memory still takes room, and when blocks
    return, all return, not those that the request needs. Not modelled: an allocation that fails midway changes
    the order in which BLIS v0.6.9 reuses blocks; here it leaves no trace. Where more of a prompt returns than a
    chunk of it needs, that BLIS ends with an error; here the chunk holds no block, as when a prompt is found whole.
    """

    Parameters = BlisOffloadParameters
    why_unseen = "no prompt is found there: all of it comes back when blocks run out"

    @classmethod
    def maker(cls, parameters, site):
        """See Protocol."""
        return partial(_tier, parameters, reload_ns_of(parameters, site), site.kv.block_bytes if site.kv else 0.0)


def _tier(parameters, reload_ns, block_bytes, workload):
    return HostOffload(parameters.cpu_blocks, parameters.offload_threshold, reload_ns, block_bytes)
