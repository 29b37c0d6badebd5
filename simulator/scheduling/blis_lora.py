"""LoRA adapters as BLIS has them: the table [engine.lora] of the scheduler `blis`."""
import math
from collections.abc import Iterator
from functools import partial
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.latency.overheads.overhead import Overhead
from simulator.scheduling.adapter_loads import AdapterLoads
from simulator.scheduling.tally import Tally

Rank = Annotated[int, Meta(ge=1, le=2**16, extra={"unit": "of matrices"})]
Positive = Annotated[float, Meta(gt=0, le=1e18)]
Time = Annotated[float, Meta(ge=0, le=1e12)]


class OverheadTier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cost of adapters of a rank in an iteration: k6 / k7 of it for each adapter."""

    rank: Annotated[Rank, Meta(description="rank of a batch's largest adapter; the nearest tier counts")]
    k6: Annotated[Time, Meta(extra={"unit": "ratio"}, description="numerator")]
    k7: Annotated[Positive, Meta(extra={"unit": "ratio"}, description="denominator")] = 1.0


class RankedAdapter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An adapter and its rank."""

    id: Annotated[str, Meta(min_length=1, description="name of the adapter in the trace")]
    rank: Annotated[Rank, Meta(description="rank of the adapter's matrices")]


class BlisLoraParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """LoRA adapters, [engine.lora], under BLIS's names.

    The head of the queue waits for its adapter, and all requests behind it wait too; adapters are loaded one at a time,
    beside the iterations. Source: inference-sim (BLIS) at f90a1e3a, sim/lora.
    """

    adapter_capacity: Annotated[int, Meta(ge=1, le=2**16, extra={"unit": "adapters"}, description=(
        "adapters that a replica holds at once"))]
    adapters: Annotated[tuple[RankedAdapter, ...], Meta(description="all adapters that requests name")]
    load_base_latency_us: Annotated[Time, Meta(description="latency of a load of any size")] = 0.0
    load_bandwidth_bytes_us: Annotated[Positive, Meta(extra={"unit": "bytes/us"}, description="bandwidth")] = 1.0
    footprint_bytes_per_rank: Annotated[Time, Meta(extra={"unit": "bytes"}, description=(
        "size of an adapter per unit of its rank"))] = 0.0
    step_overhead_tiers: Annotated[tuple[OverheadTier, ...], Meta(description=(
        "slowdown of iterations with adapters"))] = ()

    def __post_init__(self):
        names = [adapter.id for adapter in self.adapters]
        ranks = [tier.rank for tier in self.step_overhead_tiers]
        if len(set(names)) < len(names) or len(set(ranks)) < len(ranks):
            raise ValueError("adapters and step_overhead_tiers: an id, or a rank, is there twice")

    def load_us(self, rank: int) -> int:
        """Return the load time of an adapter of this rank, in whole microseconds."""
        transfer_us = math.ceil(rank * self.footprint_bytes_per_rank / self.load_bandwidth_bytes_us)
        return max(1, math.ceil(self.load_base_latency_us + transfer_us))


def label_faults(lora: BlisLoraParameters | None, names) -> Iterator[tuple[str, str]]:
    """Yield (key of [engine], fault) for adapters that are not listed."""
    known = {adapter.id for adapter in lora.adapters} if lora is not None else set(names)
    if strangers := [name for name in names if name not in known]:
        yield "lora.adapters", f"expected all that requests ask for, {', '.join(strangers[:5])} missing"


def ranks_of(lora: BlisLoraParameters, names) -> list[int]:
    """Return the rank of each adapter; all names must be listed."""
    ranks = {adapter.id: adapter.rank for adapter in lora.adapters}
    return [ranks[name] for name in names]


def new_loads(lora: BlisLoraParameters, names) -> AdapterLoads:
    """Return the adapters of one replica."""
    load_ns = [1000 * lora.load_us(rank) for rank in ranks_of(lora, names)]
    return AdapterLoads(np.array(load_ns, np.int64), lora.adapter_capacity)


def new_tally(lora: BlisLoraParameters, context) -> Tally:
    """Return the tally that counts the adapters of batches, with their ranks."""
    names = context.labels["adapter"]
    return Tally(context.demands, 1, len(names), None, np.array(ranks_of(lora, names), np.int32))


def around(lora: BlisLoraParameters | None) -> tuple:
    """Return the overhead of adapters in iterations; see Scheduler.around."""
    if lora is None or not lora.step_overhead_tiers:
        return ()
    tiers = sorted(lora.step_overhead_tiers, key=lambda tier: tier.rank)
    return (partial(_with_overhead, [tier.rank for tier in tiers], [tier.k6 / tier.k7 for tier in tiers]),)


def _with_overhead(ranks, shares, model):
    return Overhead(model, np.array(ranks, np.int32), np.array(shares, np.float64))
