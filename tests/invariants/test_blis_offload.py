"""What holds in every run with the host memory of BLIS up to v0.6.9, to which blocks move."""
import random

import pytest

from invariants.test_blis_chain import random_experiment, serve, shared_prompts
from simulator.domain import records


def with_offload(data, seed):
    """Return the same experiment with another tier."""
    rng = random.Random(seed)
    data["kv_tiers"] = {
        "protocol": "blis_offload", "cpu_blocks": rng.choice([3, 20, 1000]), "base_us": rng.choice([0.0, 300.0]),
        "offload_threshold": rng.choice([0.0, 0.3, 0.6, 0.9])}
    data["engine"]["blis_version"] = rng.choice(["0.7", "head"])
    return data


def assert_sound(cluster, run):
    """Check what holds at the end."""
    tiers, requests = run.tables["kv_tiers"], run.workload.requests
    assert not [note for note in run.diagnosis if "did not happen before the end" not in note]
    assert (requests["status"] >= records.COMPLETED).all()
    for replica in cluster.replicas:
        for checked in (replica, replica.scheduler.tier, replica.scheduler.kv):
            checked.check()
        assert replica.scheduler.kv.free_blocks == replica.scheduler.kv.num_blocks
    assert (tiers["used_chunks"] <= tiers["capacity_chunks"]).all()
    assert (tiers["thrashed_chunks"] <= tiers["loaded_chunks"]).all()
    assert (tiers["used_chunks"] <= tiers["stored_chunks"] - tiers["loaded_chunks"] - tiers["evicted_chunks"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 120, 40))
def test_blocks_that_move(tmp_path, first):
    loaded = 0
    for seed in range(first, first + 40):
        data = random_experiment(seed) if seed % 2 else shared_prompts(seed, tmp_path / "trace.csv")
        data = with_offload(data, seed)
        (cluster, fast), (_, slow) = serve(data, True), serve(data, False)
        assert_sound(cluster, fast)
        assert (fast.workload.requests == slow.workload.requests).all()
        assert (fast.tables["kv_tiers"] == slow.tables["kv_tiers"]).all()
        assert fast.clock_ns == slow.clock_ns
        loaded += int(fast.tables["kv_tiers"]["loaded_chunks"].sum())
    assert loaded > 0
