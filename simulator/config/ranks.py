"""Faults of data-parallel ranks: unsupported combinations, and keys that have no effect without ranks."""
from collections.abc import Iterator, Mapping
from typing import Any

from simulator import registry
from simulator.config.layers import Path
from simulator.domain.data_parallel import DataParallel
from simulator.domain.vllm_versions import behaviour_of, versions_that

Fault = tuple[Path, str]
SECTION = ("engine", "data_parallel")
OF_LOCK_STEP = ("dp_sync_interval", "prefill_schedule_interval", "hop_us", "padding")


def rank_faults(topology, engine, kv_tiers, latency) -> Iterator[Fault]:
    """Yield the settings of a pool that its data-parallel ranks do not support."""
    ranks, ways = engine.data_parallel, topology.tensor_parallel * topology.data_parallel
    if topology.data_parallel == 1:
        if ranks is not None:
            yield SECTION, "expected none with topology.data_parallel = 1: there are no ranks"
        return
    if topology.expert_parallel not in (1, ways):
        yield ("topology", "expert_parallel"), (
            f"expected 1, or tensor_parallel x data_parallel = {ways}, found {topology.expert_parallel}")
    if ranks is not None:
        yield from _keys(ranks, topology, engine, latency)


def _keys(ranks: DataParallel, topology, engine, latency) -> Iterator[Fault]:
    scheduler, version = engine.scheduler, getattr(engine.parameters, "vllm_version", None)
    if ranks.prefill_schedule_interval > 1 and not (
            scheduler == "vllm" and behaviour_of(version).has_prefill_interval):
        yield (*SECTION, "prefill_schedule_interval"), (
            f'only vLLM {versions_that("has_prefill_interval")} has it: expected 1 with scheduler "{scheduler}"'
            + (f' and vllm_version = "{version}"' if scheduler == "vllm" else ""))
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
        yield (*SECTION, "load_balancing"), '"hybrid" chooses among nodes: expected topology.node with it'


def conflicts_of_ranks(pools, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
    """Yield the settings of an experiment that ranks in a pool do not support.

    missing : marks a section that could not be read.
    """
    intervals = {(ranks.stats_interval_s, getattr(pool.engine.parameters, "vllm_version", None)) for pool in pools
                 if pool.topology.data_parallel > 1 and (ranks := pool.engine.data_parallel or DataParallel())
                 and ranks.load_balancing != "external"}
    if len(intervals) > 1:
        yield ("pools",), ("expected one stats_interval_s and vllm_version in all pools with ranks: one front end "
                           "chooses among them")


def hand_over_faults_in_lock_step(pool, kv_transfer) -> Iterator[tuple[str, str]]:
    """Yield (key, message) of settings that KV transfer in lock step excludes.

    A rank that waits for KV has unfinished requests: it executes dummy batches with the other ranks, and at the end
    of each step looks for arrived KV. Other combinations are refused.
    """
    name = f"pools.{pool.name}."
    facts = registry.load("scheduler", pool.engine.scheduler).facts(pool.engine.parameters)
    if kv_transfer.habits.place != "asked" or kv_transfer.habits.order != "source":
        yield "kv_transfer.protocol", (
            f'expected "nixl" or "nixl_push", found "{kv_transfer.protocol}": other protocols are not supported with '
            f"the ranks of pool {pool.name} in lock step")
    if facts.is_async:
        yield name + "engine.async_scheduling", (
            "expected false, found true: kv_transfer with data_parallel ranks in lock step is not supported with "
            "async_scheduling")
    elif kv_transfer.noticed_at == "start":
        yield "kv_transfer.noticed_at", (
            f'expected "end", found "start": ranks of pool {pool.name}, in lock step, look for KV at the end of a step')
