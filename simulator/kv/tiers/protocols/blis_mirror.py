"""`blis_mirror`: BLIS's tier in host memory, a copy of the blocks of running sequences."""
import math
from functools import partial
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.kv.tiers.host_mirror import HostMirror
from simulator.kv.tiers.protocols.base import Protocol


class TransferParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of BLIS's tiers of one level.

    Source: inference-sim (BLIS) at f90a1e3a, cmd/root.go.
    """

    cpu_blocks: Annotated[int, Meta(ge=1, le=2**30, description="host memory, in KV blocks; BLIS's --kv-cpu-blocks")]
    tokens_per_us: Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "tokens/us"}, description=(
        "rate at which a block returns to the accelerator, rounded up to whole microseconds; BLIS's "
        "--kv-transfer-bandwidth"))] = 100.0
    base_us: Annotated[float, Meta(ge=0, le=1e9, description=(
        "constant part of the time for a block's return; BLIS's --kv-transfer-base-latency"))] = 0.0


class BlisMirrorParameters(TransferParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """BLIS's options."""

    when_full: Annotated[bool, Meta(description=(
        "the host is asked only when the accelerator has no room, as in BLIS up to 0.7.10"))] = False


class BlisProtocol(Protocol):
    """Base of BLIS's protocols."""

    scheduler = "blis"
    why_cached = MappingProxyType({"blis": "only cached blocks are mirrored"})
    why_compat = "no real engine reloads blocks in this way"


class BlisMirror(BlisProtocol):
    """BLIS's `--kv-cpu-blocks`."""

    Parameters = BlisMirrorParameters

    @classmethod
    def maker(cls, parameters, site):
        """See Protocol."""
        return partial(_tier, parameters, reload_ns_of(parameters, site), site.kv.block_bytes if site.kv else 0.0)


def reload_ns_of(parameters, site) -> int:
    """Return the time for a block's return to the accelerator.

    Source: inference-sim (BLIS) at f90a1e3a, sim/kv/tiered.go: base latency + ceil(block size / bandwidth).
    """
    return round((parameters.base_us + math.ceil(site.block_size / parameters.tokens_per_us)) * 1e3)


def _tier(parameters, reload_ns, block_bytes, workload):
    return HostMirror(parameters.cpu_blocks, reload_ns, parameters.when_full, block_bytes)
