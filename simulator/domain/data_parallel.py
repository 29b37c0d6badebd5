"""Schema of [engine.data_parallel]: cooperation of the data-parallel ranks of one replica."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from simulator.domain.vllm_versions import NEWEST, VERSIONS, VllmBehaviour

Interval = Annotated[int, Meta(ge=1, le=2**20)]


class LockStepRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of ranks in lock step, as the engine applies them.

    sync_interval : steps from one agreement on unfinished requests to the next.
    agrees_at_first : they agree after their first step, too.
    prefill_interval : while others decode, prompts are computed only in steps at this interval; 1: in all.
    hop_ns : latency of each message between front end, coordinator and ranks.
    engines_start : the rank with the first request starts a wave, as in vLLM 0.33; else the front end does.
    pads_alike : where batches are padded to sizes of CUDA graphs, all ranks use one size.
    """

    sync_interval: int = VERSIONS[NEWEST].sync_interval
    agrees_at_first: bool = True
    prefill_interval: int = 1
    hop_ns: int = 0
    engines_start: bool = VERSIONS[NEWEST].engines_start_waves
    pads_alike: bool = True


class DataParallel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ranks of a replica, [engine.data_parallel].

    Each rank has a scheduler, a queue and KV blocks of its own. Source: vLLM 0.32.0, vllm/config/parallel.py.
    """

    lockstep: Annotated[bool | None, Meta(description=(
        "all ranks begin and end iterations together, a rank without tokens with a dummy batch; false: each is an "
        "independent engine; default: true if the model has experts or is not given"))] = None
    dp_sync_interval: Annotated[Interval | None, Meta(extra={"unit": "iterations"}, description=(
        "iterations after which ranks in lock step agree on whether any rank has unfinished requests; default: 16, and "
        "after the first one of each wave; vllm_version 0.10: 32"))] = None
    prefill_schedule_interval: Annotated[Interval, Meta(extra={"unit": "iterations"}, description=(
        "while others decode, and unless requests are left behind for want of room, prompts are computed only in "
        "iterations at this interval"))] = 1
    load_balancing: Annotated[Literal["internal", "hybrid", "external"], Meta(description=(
        "internal: [cluster.routing] chooses the replica, the rule of vllm_dp its rank; hybrid: [cluster.routing] "
        "chooses a node of the replica, vllm_dp a rank there; external: [cluster.routing] chooses among all ranks"
    ))] = "internal"
    stats_interval_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "internal, hybrid: age up to which a report of ranks is used again; 0: always live"))] = 0.1
    hop_us: Annotated[float, Meta(ge=0, le=1e9, description=(
        "latency of a message between front end, coordinator and ranks, which wakes sleeping ranks"))] = 0.0
    padding: Annotated[Literal["vllm", "sglang", "none"], Meta(description=(
        "vllm: where batches are padded to sizes of CUDA graphs, all ranks use the size of the largest batch; sglang: "
        "padding of the tokens gathered before the experts; none: each rank by itself"))] = "vllm"

    def rules(self, behaviour: VllmBehaviour) -> LockStepRules:
        """Return the rules of ranks in lock step, as a version of vLLM has them."""
        interval = self.dp_sync_interval or behaviour.sync_interval
        return LockStepRules(sync_interval=interval, agrees_at_first=behaviour.agrees_at_first,
                             pads_alike=self.padding == "vllm", prefill_interval=self.prefill_schedule_interval,
                             hop_ns=round(self.hop_us * 1e3), engines_start=behaviour.engines_start_waves)
