"""Data-parallel ranks, topology.data_parallel and [engine.data_parallel]: keys and conflicts."""
from typing import Annotated

from msgspec import Meta

from simulator.assembly.parts import features as used
from simulator.assembly.parts.base import Part
from simulator.config import features as has
from simulator.config.conflicts import Agreement, Conflict, Feature, Place, without
from simulator.domain.data_parallel import DataParallel
from simulator.domain.vllm_versions import versions_that


def _of_ranks(title: str, key: str) -> Feature:
    return Feature(title, f"engine.data_parallel.{key}", getattr(DataParallel(), key))


def _share_front_end(one: Place, two: Place) -> str:
    is_shared = all(place.topology.data_parallel > 1 and used.ranks_of(place).load_balancing != "external"
                    for place in (one, two))
    return "one front end chooses among the ranks of both" if is_shared else ""


INTERVAL = _of_ranks("intervals of prefills on ranks", "prefill_schedule_interval")
VERSIONS = f'only vLLM {versions_that("has_prefill_interval")} has it'
INDEPENDENT = Feature("ranks that are independent engines", "engine.data_parallel.lockstep", True)
BLIS_FAULTS = Feature("BLIS with its faults", "engine.upstream_compat", False, value=lambda place: (
    place.engine.scheduler == "blis" and place.engine.parameters.upstream_compat))
LOCK_STEP_KEYS = {"synchronisation interval": "dp_sync_interval", "interval of prefills": "prefill_schedule_interval",
                  "hop": "hop_us", "padding": "padding"}
WITHOUT_LOCK_STEP = "it concerns ranks in lock step alone"


class Ranks(Part):
    """Ranks of a replica, each with its own queue and KV blocks."""

    keys = {"engine.data_parallel": Annotated[DataParallel | None, Meta(description=(
        "coordination of the ranks of a replica, if topology.data_parallel is above 1; absent: as in vLLM"))]}
    # A rank that waits for KV has unfinished requests: it executes dummy batches with the other ranks, and at the end
    # of each step looks for arrived KV. Other combinations are refused.
    conflicts = (
        Conflict(Feature("coordination of ranks", "engine.data_parallel"), without(has.RANKS), "there are no ranks"),
        Conflict(INTERVAL, Feature("schedulers but vllm", "engine.scheduler", "vllm"), VERSIONS),
        Conflict(INTERVAL, has.versions_without("has_prefill_interval"), VERSIONS),
        Conflict(Feature("SGLang's padding of ranks", "engine.data_parallel.padding", ("vllm", "none")),
                 has.backends_without("prices of all ranks together", "prices_gathered"),
                 "it prices each rank by its own tokens"),
        *(Conflict(_of_ranks(f"{title} of ranks", key), INDEPENDENT, WITHOUT_LOCK_STEP)
          for title, key in LOCK_STEP_KEYS.items()),
        Conflict(_of_ranks("age of the counts of ranks", "stats_interval_s"),
                 Feature("external load balancing", "engine.data_parallel.load_balancing", ("internal", "hybrid")),
                 "[cluster.routing] alone chooses, see its snapshot_refresh_interval_s"),
        Conflict(Feature("hybrid load balancing", "engine.data_parallel.load_balancing", ("internal", "external")),
                 without(has.NODE, "topology.node"), "it chooses among nodes"),
        Agreement({"engine.data_parallel.stats_interval_s": lambda place: used.ranks_of(place).stats_interval_s,
                   "engine.vllm_version": lambda place: getattr(place.engine.parameters, "vllm_version", None)},
                  _share_front_end, "pools with ranks", "one front end chooses among the ranks"),
        Conflict(has.PIPELINE, used.LOCK_STEP, "pipeline stages with ranks in lock step are not supported"),
        Conflict(BLIS_FAULTS, used.LOCK_STEP, "its batches take effect before a common step begins"),
        Conflict(used.KV_TIERS, used.LOCK_STEP_TRANSFER, "ranks in lock step look for KV at the end of a step, and "
                 "tiers when a batch is launched"),
        Conflict(used.MOVES, used.LOCK_STEP, "migration between ranks in lock step is not supported"),
        Conflict(used.NOT_READ, used.LOCK_STEP, "other protocols are not supported with ranks in lock step"),
        Conflict(has.ASYNC, used.LOCK_STEP_TRANSFER, "KV transfer between such ranks is not supported with it"),
        Conflict(used.NOTICED_AT_START, used.LOCK_STEP_TRANSFER, "ranks in lock step look for KV at the end of a step"),
        Conflict(has.RECV_INTERVAL, used.LOCK_STEP,
                 "SGLang 0.5.9 refuses it with DP attention, and later versions read by the batches of all ranks"),
        Conflict(has.BATCH_WAIT, used.LOCK_STEP, "TensorRT-LLM lets no prompt wait with attention DP"),
        Conflict(has.INTERVAL, used.LOCK_STEP,
                 "vLLM counts the common steps of the ranks: give engine.data_parallel.prefill_schedule_interval"),
    )
