"""What holds in every run with levels of KV below host memory."""
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.domain import records
from support.kv_tiers import BLOCK_BYTES, random_tiers, serve


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
    if rng.random() < 0.4:                          # in lock step
        data["topology"]["data_parallel"] = rng.randint(2, 3)
    return data


def assert_sound(cluster, run):
    """Check what holds when all is over."""
    tiers = run.tables["kv_tiers"]
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
    assert (fast.tables["kv_tiers"] == slow.tables["kv_tiers"]).all()
    assert fast.clock_ns == slow.clock_ns
