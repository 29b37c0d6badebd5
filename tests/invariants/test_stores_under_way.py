"""Iterations that go ahead of stores under way decide, and count, what they do one by one."""
import random

import numpy as np
import pytest

from support.kv_tiers import GIB, serve

TABLES = ("tables", "columns", "replicas", "legs")


def random_experiment(seed):
    """Return the plain data of one: stores that last for many iterations, or end between two; some never end."""
    rng = random.Random(seed)
    data = {
        "name": "stores", "seed": seed, "latency": {"backend": "linear"}, "topology": {"replicas": rng.randint(1, 2)},
        "engine": {"num_gpu_blocks": rng.choice([40, 80, 300]), "max_model_len": 512,
                   "max_num_seqs": rng.choice([2, 8]), "max_num_batched_tokens": rng.choice([64, 512]),
                   "async_scheduling": rng.random() < 0.5, "policy": rng.choice(["fcfs", "fcfs", "priority"])},
        "kv_tiers": {
            "protocol": "vllm_offload", "kv_bytes_per_token": 1000.0, "cpu_gib": rng.choice([8, 40]) * 16_400 / GIB,
            "d2h_gb_per_s": rng.choice([0.0005, 0.002, 0.2]), "h2d_gb_per_s": rng.choice([0.002, 0.1]),
            "first_byte_us": rng.choice([0.0, 50.0, 20_000.0]), "contention": rng.choice(["fifo", "fair"]),
            "eviction_policy": rng.choice(["lru", "arc"]), "store_threshold": rng.choice([0, 0, 2]),
            "offload_prompt_only": rng.random() < 0.8, "blocks_per_chunk": rng.choice([1, 2])},
        "workload": {
            "type": "sessions", "num_sessions": rng.randint(3, 12),
            "arrival": {"process": "poisson", "rate_per_s": rng.choice([5.0, 30.0])},
            "sessions": {"rounds": {"distribution": "uniform", "min": 1, "max": 5},
                         "first_tokens": {"distribution": "uniform", "min": 20, "max": 200},
                         "new_tokens": {"distribution": "uniform", "min": 5, "max": 40},
                         "output_tokens": {"distribution": "uniform", "min": 1, "max": 60},
                         "think_time_s": {"distribution": "exponential", "mean": rng.choice([0.1, 0.5])}}}}
    if rng.random() < 0.3:
        data["horizon_s"] = rng.uniform(0.05, 1.5)
    if rng.random() < 0.2:
        data["failures"] = [{"kind": "stop", "which": "any", "at_s": rng.uniform(0.0, 1.0), "duration_s": 0.1,
                             "max_retries": 100}]
    if rng.random() < 0.2:
        data["cluster"] = {"routing": {"policy": "kvaware"}}
    return data


@pytest.mark.parametrize("seed", range(120))
def test_they_agree_with_steps_one_by_one(seed):
    (_, fast), (_, slow) = (serve(random_experiment(seed), fast_forward) for fast_forward in (True, False))

    np.testing.assert_array_equal(fast.workload.requests, slow.workload.requests)
    for name in TABLES:
        np.testing.assert_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
