"""What holds in every run with levels of KV below host memory."""
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import assemble
from simulator.config.layers import Layers, Source
from simulator.config.load import resolve
from simulator.domain import records
from simulator.results.memory import NO_SINK

GIB = 2**30
BLOCK_BYTES = 16_000


def random_levels(rng):
    """Return [[kv_tiers.secondary]] of one to three levels."""
    return [{"name": f"level{i}", "scope": rng.choice(["replica", "cluster"]),
             "capacity_gib": rng.choice([3, 20, 200, 10**6]) * BLOCK_BYTES / GIB,
             "read_gb_per_s": rng.choice([0.001, 0.01, 1.0]), "write_gb_per_s": rng.choice([0.001, 0.01, 1.0]),
             "base_us": rng.choice([0.0, 100.0, 5000.0])} for i in range(rng.randint(1, 3))]


def random_tiers(rng):
    """Return [kv_tiers] with something below host memory."""
    host_gib = rng.choice([8, 40, 300]) * 4.1 * 4096 / GIB
    tiers = {"kv_bytes_per_token": 1000.0, "d2h_gb_per_s": rng.choice([0.01, 0.2]), "h2d_gb_per_s": 0.1,
             "first_byte_us": rng.choice([0.0, 50.0])}
    return tiers | rng.choice([
        {"protocol": "vllm_offload", "cpu_gib": host_gib, "secondary": random_levels(rng),
         "eviction_policy": rng.choice(["lru", "arc", "free_queue"]), "contention": rng.choice(["fifo", "fair"]),
         "offload_prompt_only": rng.random() < 0.5, "store_threshold": rng.choice([0, 2])},
        {"protocol": "lmcache", "cpu_gib": host_gib, "chunk_tokens": rng.choice([16, 32]),
         "async_loading": rng.random() < 0.5, "secondary": random_levels(rng)},
        {"protocol": "hicache", "ratio": rng.choice([0.3, 2.0]), "page_tokens": 16,
         "prefetch_threshold": rng.choice([0, 64]), "secondary": random_levels(rng)},
        {"protocol": "kvbm", "g2_gib": host_gib, "g3_gib": host_gib * 3, "g3_is_shared": rng.random() < 0.5},
        {"protocol": "mooncake_store", "buffer_gib": host_gib, "pool_gib": host_gib * 3, "ssd_gib": host_gib * 9,
         "lease_s": rng.choice([0.0, 0.2]), "pool_gb_per_s": 0.05}])


def random_experiment(seed):
    """Return the plain data of one: conversations on a few replicas with little room."""
    rng = random.Random(seed)
    data = {
        "name": "levels", "seed": seed, "topology": {"replicas": rng.randint(1, 3)}, "latency": {"backend": "linear"},
        "engine": {"num_gpu_blocks": rng.choice([40, 80, 300]), "max_model_len": 512,
                   "max_num_seqs": rng.choice([2, 8]), "max_num_batched_tokens": rng.choice([64, 512]),
                   "async_scheduling": rng.random() < 0.5},
        "kv_tiers": random_tiers(rng),
        "workload": {
            "type": "sessions", "num_sessions": rng.randint(3, 12),
            "arrival": {"process": "poisson", "rate_per_s": 30.0},
            "sessions": {"rounds": {"distribution": "uniform", "min": 2, "max": 5},
                         "first_tokens": {"distribution": "uniform", "min": 20, "max": 200},
                         "new_tokens": {"distribution": "uniform", "min": 5, "max": 40},
                         "output_tokens": {"distribution": "uniform", "min": 1, "max": 20},
                         "think_time_s": {"distribution": "exponential", "mean": 0.1}}}}
    if rng.random() < 0.3:
        data["failures"] = [{"kind": "stop", "which": 0, "at_s": 0.05 + rng.random(), "duration_s": 0.1}]
    if rng.random() < 0.3:
        data["cluster"] = {"routing": {"policy": "least_loaded"}}
    return data


def serve(data, fast_forward):
    """Return the cluster and what came of it."""
    layers = Layers(Source("experiment", ""))
    layers.merge(data | {"engine": data["engine"] | {"fast_forward": fast_forward}}, Source("experiment", ""))
    prepared = assemble.prepare(resolve(layers))
    cluster = assemble.build(prepared, NO_SINK)
    return cluster, cluster.run()


def assert_sound(cluster, run):
    """Check what holds when all is over."""
    tiers = run.kv_tiers
    assert run.complete
    assert (run.workload.requests["status"] >= records.COMPLETED).all()     # nobody is lost
    for replica in cluster.replicas:                # free + owned + held + loading = usable, and all are free
        replica.check()
        replica.scheduler.tier.check()
        assert replica.scheduler.kv.free_blocks == replica.scheduler.kv.num_blocks
        assert replica.scheduler.loading == replica.scheduler.loading_tokens == 0
    assert (tiers["started"] == tiers["stores"] + tiers["loads"] + tiers["cancelled"] + tiers["underway"]).all()
    assert (tiers["underway"] >= 0).all()
    assert (tiers["used_chunks"] <= tiers["capacity_chunks"]).all()
    assert (tiers["loaded_chunks"] <= tiers["hit_chunks"]).all()
    chunk_bytes = tiers["stored_bytes"][tiers["stored_chunks"] > 0] / tiers["stored_chunks"][tiers["stored_chunks"] > 0]
    assert ((chunk_bytes == BLOCK_BYTES) | (chunk_bytes == 2 * BLOCK_BYTES)).all()


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_levels_below_the_host(seed):
    data = random_experiment(seed)
    (cluster, fast), (_, slow) = serve(data, True), serve(data, False)

    assert_sound(cluster, fast)
    assert (fast.workload.requests == slow.workload.requests).all()
    assert (fast.kv_tiers == slow.kv_tiers).all()
    assert fast.clock_ns == slow.clock_ns
