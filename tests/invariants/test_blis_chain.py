"""What holds in every run with BLIS's chain of KV tiers."""
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.assembly import assemble
from simulator.config.layers import Layers, Source
from simulator.config.load import resolve
from simulator.domain import records
from simulator.results.memory import NO_SINK

GIB = 2**30
BLOCK_BYTES = 16_000


def random_experiment(seed):
    """Return the plain data of one: conversations on a few replicas with little room."""
    rng = random.Random(seed)
    data = {
        "name": "chain", "seed": seed, "topology": {"replicas": rng.randint(1, 3)}, "horizon_s": 30.0,
        "engine": {"scheduler": "blis", "upstream_compat": True, "num_gpu_blocks": rng.choice([40, 60, 200]),
                   "max_model_len": 512, "max_num_seqs": rng.choice([2, 8]),
                   "max_num_batched_tokens": rng.choice([64, 512]),
                   "long_prefill_token_threshold": rng.choice([0, 24]),
                   "policy": rng.choice(["fcfs", "sjf"])},
        "latency": {"backend": "linear", "base_us": rng.choice([200.0, 5000.0])},
        "kv_tiers": {
            "protocol": "blis_chain", "kv_bytes_per_token": 1000.0, "offload_prompt_only": rng.random() < 0.5,
            "cpu_gib": (rng.choice([2, 10, 30, 300]) + 0.5) * BLOCK_BYTES / GIB,
            "secondary": [{
                "readers": rng.randint(1, 3), "writers": rng.randint(1, 3), "base_us": rng.choice([0, 100, 5000]),
                "read_gb_per_s": rng.choice([0.001, 0.04, 10.0]), "write_gb_per_s": rng.choice([0.001, 0.04, 10.0]),
                "full_depth": rng.choice([0, 4]), "first_frac": rng.choice([0.25, 1.0])}
                for _ in range(rng.randint(0, 3))]},
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
    return data


def shared_prompts(seed, path):
    """Return the same with prompts that begin alike, of whole blocks, on a replica with hardly any room."""
    rng, at_s = random.Random(seed), 0.0
    data = random_experiment(seed) | {"topology": {"replicas": 1}, "workload": {"type": "trace", "path": str(path)}}
    data.pop("failures", None)
    data["engine"] |= {"num_gpu_blocks": rng.choice([12, 14, 18, 24]), "max_num_seqs": 8, "policy": "sjf"}
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens,prompt"]
    for _ in range(30):
        at_s += rng.random() * 0.03
        name, tokens = rng.choice("abc"), rng.randint(2, 6) * 16
        lines.append(f"{at_s:.6f},{tokens},{rng.choice([1, 5, 20])},{name}:{tokens}")
    path.write_text("\n".join(lines) + "\n")
    if rng.random() < 0.5:
        data["kv_tiers"] = {"protocol": "blis_mirror", "cpu_blocks": 100, "when_full": rng.random() < 0.3}
    return data


def serve(data, fast_forward):
    """Return the cluster and what came of it."""
    layers = Layers(Source("experiment", ""))
    layers.merge(data | {"engine": data["engine"] | {"fast_forward": fast_forward}}, Source("experiment", ""))
    prepared = assemble.prepare(resolve(layers))
    cluster = assemble.build(prepared, NO_SINK)
    return cluster, cluster.run()


def assert_sound(cluster, run):
    """Check what holds at the end, and when all is over."""
    tiers, livelocked = run.tables["kv_tiers"], any("livelock" in each for each in run.diagnosis)
    host, below = tiers[tiers["level"] == 0], tiers[tiers["level"] > 0]
    for replica in cluster.replicas:
        replica.check()
        replica.scheduler.tier.check()
        replica.scheduler.kv.check()
        if not livelocked and (run.workload.requests["status"] >= records.COMPLETED).all():
            assert replica.scheduler.kv.free_blocks == replica.scheduler.kv.num_blocks
    assert livelocked or (run.workload.requests["status"] >= records.COMPLETED).all()       # nobody is lost
    assert (tiers["started"] == tiers["stores"] + tiers["loads"] + tiers["cancelled"] + tiers["underway"]).all()
    assert (tiers["underway"] >= 0).all()
    assert (host["used_chunks"] <= host["capacity_chunks"]).all()
    assert (tiers["stored_bytes"] == tiers["stored_chunks"] * BLOCK_BYTES).all()
    assert (tiers["loaded_bytes"] == tiers["loaded_chunks"] * BLOCK_BYTES).all()
    for replica in host["replica"]:
        kept = int(host["stored_chunks"][host["replica"] == replica][0])
        levels = below[below["replica"] == replica]
        assert (levels["used_chunks"] <= levels["stores"]).all()
        assert (levels["stored_chunks"] == levels["stores"]).all()      # a write is of one block, a read of some
        assert (levels["loaded_chunks"] >= levels["loads"]).all()
        assert (levels["stores"] <= kept).all()                         # each block that is kept is written, once


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_a_chain(seed):
    data = random_experiment(seed)
    (cluster, fast), (_, slow) = serve(data, True), serve(data, False)

    assert_sound(cluster, fast)
    assert (fast.workload.requests == slow.workload.requests).all()
    assert (fast.tables["kv_tiers"] == slow.tables["kv_tiers"]).all()
    assert fast.clock_ns == slow.clock_ns


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 100))
def test_requests_leave_nothing_of_what_they_kept_while_they_waited(tmp_path, first):
    # Of a prompt that is then found whole, too. Some runs stand still, as BLIS's would.
    done = 0
    for seed in range(first, first + 100):
        cluster, run = serve(shared_prompts(seed, tmp_path / "trace.csv"), True)
        replica = cluster.replicas[0]
        for checked in (replica, replica.scheduler.tier, replica.scheduler.kv):
            checked.check()
        if not run.diagnosis:
            done += 1
            assert replica.scheduler.kv.free_blocks == replica.scheduler.kv.num_blocks
    assert done > 80
