"""LoRA adapters: keys that engines share, the time that adapters take in a batch, and their room on the accelerator."""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.adapter_size import adapter_bytes
from simulator.latency.overheads.adapters import Adapters

Rate = Annotated[float, Meta(gt=0, le=1e9)]
Time = Annotated[float, Meta(ge=0, le=1e12)]


class AdapterKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of [engine.lora] that engines share.

    They add the number of adapters, and `disk_gb_per_s`.
    """

    rank: Annotated[int, Meta(ge=1, le=4096, extra={"unit": "of matrices"}, description=(
        "rank of each adapter, which determines its size"))] = 16
    adapter_mb: Annotated[Rate | None, Meta(extra={"unit": "MB"}, description=(
        "size of each adapter; default: all projections of attention and MLP in 16 bits"))] = None
    h2d_gb_per_s: Annotated[Rate | None, Meta(description=(
        "copy rate of an adapter to the accelerator; absent: copies take no time"))] = None
    step_factor: Annotated[float, Meta(ge=1, le=100, description=(
        "factor on the time of an iteration with any adapter"))] = 1.1
    per_adapter_us: Annotated[Time, Meta(description="time added to an iteration per adapter in it")] = 0.0

    @property
    def takes_time_to_load(self) -> bool:
        """Return whether the size of adapters matters."""
        return self.disk_gb_per_s is not None or self.h2d_gb_per_s is not None


def with_adapters(lora, deployment, model, in_each=False) -> Adapters:
    """Return a model that prices adapters and their loads.

    lora : AdapterKeys. in_each : kernels of adapters also run in batches without.

    Raises
    ------
    ValueError
        The adapters' size is needed and unknown.
    """
    load_us = read_us = 0.0
    if lora.takes_time_to_load:
        if lora.adapter_mb is None and deployment is None:
            raise ValueError("lora.adapter_mb: needed, since without [model] the size of adapters is unknown")
        size = lora.adapter_mb * 1e6 if lora.adapter_mb is not None else adapter_bytes(deployment.model, lora.rank)
        load_us, read_us = (size / (rate * 1e3) if rate else 0.0 for rate in (lora.h2d_gb_per_s, lora.disk_gb_per_s))
    return Adapters(model, lora.step_factor, lora.per_adapter_us, load_us, read_us, in_each)


def slots_bytes(lora, deployment) -> float:
    """Return the bytes of the adapters on a rank that holds all layers.

    lora : AdapterKeys; None: there are none.

    Raises
    ------
    ValueError
        The adapters' size is unknown.
    """
    if lora is None:
        return 0.0
    ranks = deployment.parallelism.tensor_parallel
    if lora.adapter_mb is not None:             # which matrices are split is unknown: assume all
        return lora.slots * lora.adapter_mb * 1e6 / ranks
    return lora.slots * adapter_bytes(deployment.model, lora.rank, ranks)
