"""Data-parallel ranks: what does not go together with them, and what says nothing without them."""
from collections.abc import Iterator, Mapping
from typing import Any

from simulator import registry
from simulator.config.layers import Path
from simulator.domain.data_parallel import DataParallel

Fault = tuple[Path, str]
SECTION = ("engine", "data_parallel")
OF_LOCK_STEP = ("dp_sync_interval", "prefill_schedule_interval", "hop_us", "padding")


def rank_faults(topology, engine, kv_tiers, latency) -> Iterator[Fault]:
    """Yield what a pool cannot have together with its ranks."""
    ranks, ways = engine.data_parallel, topology.tensor_parallel * topology.data_parallel
    if topology.data_parallel == 1:
        if ranks is not None:
            yield SECTION, "expected none with topology.data_parallel = 1: there are no ranks"
        return
    if topology.expert_parallel not in (1, ways):
        yield ("topology", "expert_parallel"), (
            f"expected 1, or tensor_parallel x data_parallel = {ways}, found {topology.expert_parallel}")
    if topology.pipeline_parallel > 1:
        yield ("topology", "pipeline_parallel"), (
            f"expected 1 with data_parallel = {topology.data_parallel}, found {topology.pipeline_parallel}: when ranks "
            "in lock step enter the stages is not settled")
    if kv_tiers is not None:
        yield ("kv_tiers",), (f"expected none with topology.data_parallel = {topology.data_parallel}: what a tier does "
                              "between the iterations of ranks is not settled")
    if ranks is not None:
        yield from _keys(ranks, topology, engine, latency)


def _keys(ranks: DataParallel, topology, engine, latency) -> Iterator[Fault]:
    scheduler, modern = engine.scheduler, getattr(engine.parameters, "vllm_version", None) == "0.32"
    if ranks.prefill_schedule_interval > 1 and not (scheduler == "vllm" and modern):
        yield (*SECTION, "prefill_schedule_interval"), (
            f'only vLLM 0.32 has it: expected 1 with scheduler "{scheduler}"'
            + (' and vllm_version = "0.10"' if scheduler == "vllm" else ""))
    if ranks.padding == "sglang" and not registry.load("latency", latency.backend).prices_gathered:
        yield (*SECTION, "padding"), (
            f'expected "none", found "sglang": latency.backend = "{latency.backend}" prices each rank by its own '
            "tokens")
    if ranks.lockstep is False:
        for name in OF_LOCK_STEP:
            if getattr(ranks, name) != getattr(DataParallel(), name):
                yield (*SECTION, name), "expected none with lockstep = false: it concerns ranks in lock step alone"
    if ranks.load_balancing == "external" and ranks.stats_interval_s != DataParallel().stats_interval_s:
        yield (*SECTION, "stats_interval_s"), (
            'expected none with load_balancing = "external": [cluster.routing] alone chooses, see its '
            "snapshot_refresh_interval_s")
    if ranks.load_balancing == "hybrid" and topology.node is None:
        yield (*SECTION, "load_balancing"), '"hybrid" chooses among nodes: expected topology.node beside it'


def conflicts_of_ranks(pools, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
    """Yield what an experiment cannot have together with ranks in any of its pools.

    missing : stands for a section that could not be read.
    """
    found = [sections[name] for name in ("topology", "failures", "autoscaling", "cluster", "kv_transfer")]
    if any(section is missing for section in found):
        return
    topology, failures, autoscaling, cluster, kv_transfer = found
    if not any(each.data_parallel > 1 for each in ([pool.topology for pool in pools] or [topology])):
        return
    why = "expected none where topology.data_parallel is above 1: "
    if failures:
        yield ("failures",), why + "what becomes of the other ranks when one fails is not settled"
    if autoscaling is not None:
        yield ("autoscaling",), why + "ranks come and go together, which is not built"
    if cluster.rescheduling is not None:
        yield ("cluster", "rescheduling"), why + "requests do not move between ranks"
    if kv_transfer is not None:
        yield ("kv_transfer",), why + "what ranks would do together when prompts are computed apart is not settled"
    intervals = {(ranks.stats_interval_s, getattr(pool.engine.parameters, "vllm_version", None)) for pool in pools
                 if pool.topology.data_parallel > 1 and (ranks := pool.engine.data_parallel or DataParallel())
                 and ranks.load_balancing != "external"}
    if len(intervals) > 1:
        yield ("pools",), ("expected one stats_interval_s and vllm_version in all pools with ranks: one front end "
                           "chooses among them")
