"""What holds where prompts are computed apart and replicas have KV tiers of their own."""
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.domain import records
from simulator.kv.tiers.fair_lane import FairLane
from simulator.kv.tiers.fifo_lane import FifoLane
from simulator.kv.tiers.lru import Lru
from simulator.kv.tiers.offloading import OffloadingTier
from simulator.kv.tiers.settings import Offloading
from support.hand_over import MS, random_case
from support.hand_over import serve as serve_plan
from support.kv_tiers import random_tiers, serve

PROTOCOLS = {"nixl": ("prompt",), "nixl_push": ("prompt",), "mooncake": ("prompt", "chunk"),
             "sglang": ("chunk", "prompt")}
TABLES = ("requests", "transfers", "tables", "columns", "legs")


def random_pools(rng, tiers):
    """Return [[pools]]; all have the tier, or those of one role."""
    pools = [{"name": role, "role": role, "replicas": rng.randint(1, 2)} for role in ("prefill", "decode")]
    if rng.random() < 0.2:
        pools.append({"name": "both", "role": "both"})
    having = rng.choice([pools, pools, pools[:1], pools[1:]])
    for pool in having:
        pool["kv_tiers"] = tiers
    return pools


def random_experiment(seed, *, fails=False):
    """Return the plain data of one: conversations on a few replicas with little room."""
    rng = random.Random(seed)
    protocol = "nixl" if fails else rng.choice([*PROTOCOLS])
    moving = {"protocol": protocol, "granularity": rng.choice(PROTOCOLS[protocol]), "kv_bytes_per_token": 1000.0,
              "bandwidth_gb_per_s": rng.choice([0.001, 0.1]), "base_us": rng.choice([0.0, 400.0]),
              "notice_us": rng.choice([0.0, 300.0])}
    if protocol == "nixl":
        moving |= {"lease_s": rng.choice([0.02, 30.0]), "handshake_ms": rng.choice([0.0, 7.0]),
                   "failure_policy": rng.choice(["fail", "recompute"])}
    if protocol == "sglang":
        moving["num_reserved_decode_tokens"] = rng.choice([0, 16])
    data = {
        "name": "tiers", "seed": seed, "latency": {"backend": "linear"}, "kv_transfer": moving,
        "engine": {"num_gpu_blocks": rng.choice([34, 40, 80, 300]), "max_model_len": 512,
                   "max_num_seqs": rng.choice([2, 8]), "max_num_batched_tokens": rng.choice([64, 512]),
                   "async_scheduling": rng.random() < 0.5},
        "pools": random_pools(rng, random_tiers(rng)),
        "workload": {
            "type": "sessions", "num_sessions": rng.randint(3, 12),
            "arrival": {"process": "poisson", "rate_per_s": 30.0},
            "sessions": {"rounds": {"distribution": "uniform", "min": 2, "max": 5},
                         "first_tokens": {"distribution": "uniform", "min": 20, "max": 200},
                         "new_tokens": {"distribution": "uniform", "min": 5, "max": 40},
                         "output_tokens": {"distribution": "uniform", "min": 1, "max": 60},
                         "think_time_s": {"distribution": "exponential", "mean": 0.1}}}}
    if fails:
        data["failures"] = [
            {"kind": rng.choice(["stop", "stop", "link"]), "which": rng.choice(["any", 0, 1]),
             "at_s": rng.uniform(0.0, 1.0), "duration_s": rng.choice([0.01, 0.1]), "max_retries": 100}
            for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.3:
            data["autoscaling"] = {"policy": "queue", "interval_s": 0.03, "max_replicas": 4, "target_waiting": 1.0}
    return data


def assert_sound(cluster, run, *, ends_early=False):
    """Check what holds when all is over.

    ends_early : blocks may still be kept, and prefill legs run of those who gave up.
    """
    assert run.complete
    assert (run.workload.requests["status"] >= records.COMPLETED).all()     # nobody is lost
    for replica in cluster.replicas:                # free + owned + held + loading = usable, and all are free
        replica.check()
        if hasattr(replica.scheduler.tier, "check"):
            replica.scheduler.tier.check()
        assert ends_early or replica.scheduler.kv.free_blocks == replica.scheduler.kv.num_blocks
        assert ends_early or replica.scheduler.loading == replica.scheduler.loading_tokens == 0
    for _, tier in cluster.tier_rows():
        assert tier["started"] == tier["stores"] + tier["loads"] + tier["cancelled"] + tier["underway"]
        assert tier["used_chunks"] <= tier["capacity_chunks"]
        assert tier["loaded_chunks"] <= tier["hit_chunks"]
    (hand_over,) = (each for each in cluster.operations if each.continues)
    hand_over.check()
    if not ends_early:
        assert hand_over.started == hand_over.completed + hand_over.failed + hand_over.cancelled


def assert_same(one, other):
    assert one.clock_ns == other.clock_ns
    for name in TABLES:
        np.testing.assert_equal(getattr(one.workload if name == "requests" else one, name),
                                getattr(other.workload if name == "requests" else other, name))


@pytest.mark.ci
@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_both_at_once(seed):
    data = random_experiment(seed)
    (cluster, fast), (_, slow) = serve(data, True), serve(data, False)

    assert_sound(cluster, fast)
    assert_same(fast, slow)
    assert_same(fast, serve(data, True)[1])


@pytest.mark.ci
@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_both_where_replicas_fail_come_and_go(seed):
    data = random_experiment(seed, fails=True)
    (cluster, fast), (_, slow) = serve(data, True), serve(data, False)

    assert_sound(cluster, fast, ends_early=True)
    assert_same(fast, slow)
    assert_same(fast, serve(data, True)[1])


def random_host(rng, **settings):
    """Return what makes host memory for chunks of blocks of 16 tokens, or whatever they have."""
    offloading = Offloading(**{
        "policy": Lru, "chunks": rng.choice([3, 20, 1000]), "blocks_per_chunk": rng.choice([1, 1, 2]),
        "offload_prompt_only": rng.random() < 0.5, "waits": rng.random() < 0.7, "confirms": rng.random() < 0.2,
        "loads_in_step": rng.random() < 0.3} | settings)
    lane, base_ns, block_ns = rng.choice([FifoLane, FairLane]), rng.choice([0, MS, 20 * MS]), rng.choice([1e4, 1e6])
    return lambda workload: OffloadingTier(offloading, lane(base_ns, block_ns), lane(base_ns, block_ns))


def case_with_hosts(seed, **settings):
    rng = random.Random(seed)
    workload, case = random_case(seed)
    case["cache"].pop("layer_groups", None)
    case["cache"]["enable_prefix_caching"] = case["cache"].get("enable_prefix_caching", True)
    if case["plan"]["place"] != "asked":
        case["plan"] |= {"place": "asked", "sends_token": False}
    return workload, case | {"tier": random_host(rng, **settings)}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_decisions_are_those_of_block_tables(seed):
    workload, case = case_with_hosts(seed)
    fast, slow = serve_plan(workload, **case), serve_plan(workload, fast_forward=False, **case)
    named = serve_plan(workload, tracks_identity=True, **case)

    assert_sound(fast.cluster, fast.run)
    for other in (slow, named):
        for table in ("requests", "transfers", "legs"):
            np.testing.assert_array_equal(getattr(fast, table), getattr(other, table))
        assert fast.token_ms == other.token_ms
        np.testing.assert_equal(fast.run.columns, other.run.columns)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_a_tier_that_stores_nothing_changes_nothing(seed):
    # Under async scheduling a prefill replica that may also load puts off frees, which a mere producer does not.
    workload, case = case_with_hosts(seed, store_threshold=2**20)
    case["parameters"] = replace(case["parameters"], async_scheduling=False)
    case["plan"]["notices_at_start"] = True
    without = {name: value for name, value in case.items() if name != "tier"}
    one, other = serve_plan(workload, **case), serve_plan(workload, **without)

    for table in ("requests", "transfers", "legs"):
        np.testing.assert_array_equal(getattr(one, table), getattr(other, table))
    assert one.token_ms == other.token_ms


def test_the_cases_are_worth_running():
    totals = {"loaded_chunks": 0, "stored_chunks": 0, "flushed": 0, "evicted_chunks": 0, "cancelled": 0}
    moved = failed = preempted = 0
    for seed in range(60):
        _, run = serve(random_experiment(seed, fails=seed % 2 == 1), True)
        for name in totals:
            totals[name] += int(run.tables["kv_tiers"][name].sum())
        moved += run.transfer_counts["count"]
        failed += run.transfer_counts["failed"] + run.transfer_counts["cancelled"]
        preempted += int(run.workload.requests["preemptions"].sum())

    assert min(totals.values()) > 5
    assert (moved > 1000, failed > 10, preempted > 10) == (True, True, True)
