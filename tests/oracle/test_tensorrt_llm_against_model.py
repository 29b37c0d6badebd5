"""`scheduler = "tensorrt_llm"` against its rules in plain Python, on random traffic."""
from random import Random

import pytest

from oracle.tensorrt_llm import Oracle, serve
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.tensorrt_llm import TensorrtLlm, TensorrtLlmParameters
from support.engine import plan_of
from support.recording import record
from support.workloads import plain_workload

MS = 1_000_000
PRICES = LinearParameters(base_us=1000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0)
POLICIES = ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH")


def scene(seed, policy):
    """Return (requests, parameters, blocks, block_size)."""
    rng = Random(seed)
    block_size, chunked = rng.choice([1, 4, 8]), rng.random() < 0.6
    parameters = TensorrtLlmParameters(
        max_batch_size=rng.choice([1, 2, 4, 16]), max_num_tokens=rng.choice([24, 40, 100]),
        capacity_scheduler_policy=policy, enable_chunked_context=chunked,
        context_chunking_policy=rng.choice(["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"] if chunked else [
            "FIRST_COME_FIRST_SERVED"]),
        batching_type=rng.choice(["INFLIGHT", "INFLIGHT", "STATIC"]),
        **rng.choice([{}, {"batch_wait_timeout_iters": rng.choice([1, 5, 20]),
                           "batch_wait_max_tokens_ratio": rng.choice([0.2, 0.9, 1.0])}]))
    arrivals = sorted(rng.randint(0, 40) * MS + 1 for _ in range(25))
    requests = []
    for arrival in arrivals:
        output = rng.randint(1, 30)
        requests.append((arrival, rng.randint(1, 60 if chunked else 24), output, output + rng.choice([0, 0, 10])))
    largest = max(-(-(prompt + limit) // block_size) for _, prompt, _, limit in requests)
    return requests, parameters, int(largest * rng.choice([1, 1.5, 4])) + 1, block_size


def run(requests, parameters, blocks, block_size, **setup):
    arrivals, prompts, outputs, limits = map(list, zip(*requests, strict=True))
    workload = plain_workload(arrivals, prompts, outputs)
    workload.demands["max_tokens"] = limits
    return record(workload, plan_of(
        parameters, Linear(PRICES), scheduler=TensorrtLlm, num_gpu_blocks=blocks, block_size=block_size,
        max_model_len=200, enable_prefix_caching=False, **setup), details=False)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_engine_keeps_the_rules(policy):
    pauses = 0
    for seed in range(200):
        requests, parameters, blocks, block_size = scene(seed, policy)
        expected = serve(requests, Oracle(parameters, blocks, block_size, 200), MS)
        for fast_forward in (True, False):
            found = run(requests, parameters, blocks, block_size, fast_forward=fast_forward).requests
            assert (found["completed_ns"].tolist(), found["preemptions"].tolist()) == expected, (seed, fast_forward)
        pauses += sum(expected[1])
    assert (pauses > 0) == (policy == "MAX_UTILIZATION")
