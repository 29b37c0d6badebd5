"""A router sees what the tiers of replicas hold at the instant it looks, whichever way the replicas got there."""
import random
from pathlib import Path

import pytest

import simulator
from support.kv_tiers import BLOCK_BYTES, GIB, random_tiers, serve
from support.tier_notes import SEEN

CONFIGS = Path(__file__).parents[2] / "configs"
BLIS = {"scheduler": "blis", "upstream_compat": True}


def random_experiment(seed):
    """Return the plain data of one: conversations that go to any of a few replicas with little room."""
    rng = random.Random(seed)
    data = {
        "name": "tiers", "seed": seed, "topology": {"replicas": rng.randint(2, 4)}, "latency": {"backend": "linear"},
        "engine": {"num_gpu_blocks": rng.choice([40, 80, 300]), "max_model_len": 512,
                   "max_num_seqs": rng.choice([2, 8]), "max_num_batched_tokens": rng.choice([64, 512]),
                   "async_scheduling": rng.random() < 0.5},
        "kv_tiers": random_tiers(rng), "cluster": {"routing": {"policy": "support.tier_notes:Notes"}},
        "workload": {
            "type": "sessions", "num_sessions": rng.randint(4, 12),
            "arrival": {"process": "poisson", "rate_per_s": 30.0},
            "sessions": {"rounds": {"distribution": "uniform", "min": 2, "max": 5},
                         "first_tokens": {"distribution": "uniform", "min": 20, "max": 200},
                         "new_tokens": {"distribution": "uniform", "min": 5, "max": 40},
                         "output_tokens": {"distribution": "uniform", "min": 1, "max": 60},
                         "think_time_s": {"distribution": "exponential", "mean": 0.1}}}}
    if rng.random() < 0.3:
        data["failures"] = [{"kind": "stop", "which": 0, "at_s": 0.05 + rng.random(), "duration_s": 0.1}]
    if rng.random() < 0.3:
        data["cluster"]["routing"]["cache_signal_delay_s"] = rng.choice([0.01, 0.2])
    return data


def like_blis(data, rng):
    """Replace the tier by one of BLIS's."""
    data["engine"] = {key: value for key, value in data["engine"].items() if key != "async_scheduling"} | BLIS
    data["kv_tiers"] = rng.choice([
        {"protocol": "blis_mirror", "cpu_blocks": rng.choice([20, 200]), "when_full": rng.random() < 0.5},
        {"protocol": "blis_chain", "cpu_gib": rng.choice([20, 200]) * BLOCK_BYTES / GIB, "kv_bytes_per_token": 1000.0,
         "secondary": [{"readers": 1, "writers": rng.choice([1, 4]), "read_gb_per_s": 0.1, "write_gb_per_s": 0.1,
                        "base_us": 100}] * rng.randint(0, 2)}])
    return data


def in_groups(data, rng):
    """Give the model two kinds of layers, and a tier that knows them."""
    data["engine"]["kv_cache_groups"] = [{"kind": "full_attention"}, {"kind": "sliding_attention", "window": 64}]
    data["kv_tiers"] = {"protocol": "vllm_offload", "cpu_gib": 0.002, "kv_bytes_per_token": 1000.0,
                        "d2h_gb_per_s": 0.2, "h2d_gb_per_s": 0.1, "blocks_per_chunk": rng.choice([1, 2])}
    return data


def seen(data, fast_forward):
    SEEN.clear()
    serve(data, fast_forward)
    return list(SEEN)


def assert_seen_alike(data):
    fast, slow = seen(data, True), seen(data, False)
    assert fast == slow
    assert len(fast) > 0
    return fast


@pytest.mark.parametrize("seed", range(60))
def test_what_is_seen_is_there_with_and_without_fast_forward(seed):
    assert_seen_alike(random_experiment(seed))


@pytest.mark.parametrize("seed", range(25))
def test_so_it_is_of_blis(seed):
    assert_seen_alike(like_blis(random_experiment(1000 + seed), random.Random(seed)))


@pytest.mark.parametrize("seed", range(15))
def test_so_it_is_where_layers_are_in_groups(seed):
    assert_seen_alike(in_groups(random_experiment(2000 + seed), random.Random(seed)))


@pytest.mark.ci
def test_there_is_something_to_see_on_each_medium():
    found = [sum(blocks[medium] for seed in range(40) for *_, replicas in seen(random_experiment(seed), True)
                 for blocks in replicas) for medium in range(4)]
    assert min(found) > 100, found
    for change in (like_blis, in_groups):
        assert sum(blocks[1] for seed in range(10) for *_, replicas in seen(
            change(random_experiment(seed), random.Random(seed)), True) for blocks in replicas) > 100


@pytest.mark.ci
@pytest.mark.slow
def test_so_it_is_where_prompts_are_computed_apart():
    # Two gateways, for prompts and for what follows them, follow one store.
    tiers = {"cpu_gib": 2.0, "d2h_gb_per_s": 50.0, "h2d_gb_per_s": 50.0, "secondary": [
        {"name": "disk"}, {"name": "store", "scope": "cluster", "capacity_gib": 20.0}]}
    found = []
    for fast_forward in (True, False):
        SEEN.clear()
        simulator.run(CONFIGS / "prefill_decode_tiers.toml", {
            "cluster.routing.policy": "support.tier_notes:Notes", "engine.fast_forward": fast_forward,
            "workload.num_requests": 40, "pools": [
                {"name": role, "role": role, "replicas": 2, "kv_tiers": tiers} for role in ("prefill", "decode")]})
        found.append(list(SEEN))
    assert found[0] == found[1]
    assert len(found[0]) == 80
    assert sum(blocks[3] for *_, replicas in found[0] for blocks in replicas) > 100
