"""Schedulers that rank who waits against their rules in plain Python, on random traffic."""
from random import Random

import pytest
from msgspec import structs

from oracle import ranked
from simulator import registry
from simulator.latency.linear import Linear, LinearParameters
from support.engine import plan_of
from support.recording import record
from support.workloads import plain_workload

MS = 1_000_000
PRICES = LinearParameters(base_us=1000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0)
MODELS = {"andes": ranked.Andes, "fastserve": ranked.FastServe, "vtc": ranked.Vtc}


def scene(name, seed):
    """Return (requests, parameters, blocks, block_size)."""
    rng = Random(f"{name} {seed}")
    own = {"andes": lambda: {
               "expected_ttft_s": rng.choice([0.0, 0.01]), "tokens_per_s": rng.choice([50.0, 400.0]),
               "token_latency_ms": rng.choice([1.0, 5.0]), "horizon_s": rng.choice([0.02, 0.2]),
               "running_bonus": rng.choice([0.0, 0.5]), "kv_watermark": rng.choice([0.0, 0.7]),
               "preemptions_per_request": rng.choice([0.3, 1.0, 5.0])},
           "fastserve": lambda: {
               "quantum_ms": rng.choice([1.0, 3.0]), "quantum_ratio": rng.choice([1.5, 2.0]),
               "starvation_s": rng.choice([0.01, 0.05, 3.0]), "prefill_us_per_token": rng.choice([None, 50.0, 500.0])},
           "vtc": lambda: {"input_token_weight": rng.choice([0, 1, 3]), "output_token_weight": rng.choice([1, 2])}}
    parameters = registry.load("scheduler", name).Parameters(
        max_num_seqs=rng.choice([1, 2, 4, 16]), max_num_batched_tokens=rng.choice([24, 40, 100]),
        long_prefill_token_threshold=rng.choice([0, 0, 7]), **own[name]())
    block_size = rng.choice([1, 4, 8])
    requests = [(arrival, rng.randint(1, 60), rng.randint(1, 30), rng.choice([0, 0, 0, 1, 2]))
                for arrival in sorted(rng.randint(0, 60) * MS + 1 for _ in range(25))]
    largest = max(-(-(prompt + output) // block_size) for _, prompt, output, _ in requests)
    return requests, parameters, int(largest * rng.choice([1, 1.5, 4])) + 1, block_size


def run(name, requests, parameters, blocks, block_size, **setup):
    arrivals, prompts, outputs, tenants = map(list, zip(*requests, strict=True))
    workload = plain_workload(arrivals, prompts, outputs)
    workload.demands["tenant"] = tenants
    workload = structs.replace(workload, labels={"tenant": ("a", "b", "c")})
    return record(workload, plan_of(
        parameters, Linear(PRICES), scheduler=registry.load("scheduler", name), num_gpu_blocks=blocks + 1,
        block_size=block_size, max_model_len=400, enable_prefix_caching=False, **setup), details=False)


@pytest.mark.ci
@pytest.mark.parametrize("name", MODELS)
def test_the_engine_keeps_the_rules(name):
    preemptions = given_way = 0
    for seed in range(200):
        requests, parameters, blocks, block_size = scene(name, seed)
        replica = MODELS[name](parameters, blocks, block_size)
        expected = ranked.serve(requests, replica, MS)
        for fast_forward in (True, False):
            found = run(name, requests, parameters, blocks, block_size, fast_forward=fast_forward).requests
            assert (found["completed_ns"].tolist(), found["preemptions"].tolist()) == expected, (seed, fast_forward)
        preemptions += sum(expected[1])
        given_way += replica.given_way
    assert preemptions > given_way
    assert (given_way > 200) == (name != "vtc")


@pytest.mark.parametrize("name", ["andes", "fastserve"])
@pytest.mark.parametrize("instants", [1, 3, 40])
def test_many_that_wait_keep_the_rules(name, instants):
    # Ties: few lengths, and many come at once. A place for every twentieth.
    rng = Random(instants)
    for seed in range(2):
        _, parameters, _, block_size = scene(name, seed)
        parameters = structs.replace(parameters, max_num_seqs=8, max_num_batched_tokens=100)
        requests = [(arrival, rng.randint(1, 12), rng.choice([1, 5, 30, 60]), 0)
                    for arrival in sorted(rng.randrange(instants) * MS + 1 for _ in range(80))]
        expected = ranked.serve(requests, MODELS[name](parameters, 80, block_size), MS)
        for fast_forward in (True, False):
            found = run(name, requests, parameters, 80, block_size, fast_forward=fast_forward).requests
            assert (found["completed_ns"].tolist(), found["preemptions"].tolist()) == expected, (seed, fast_forward)


@pytest.mark.parametrize("name", ["andes", "fastserve"])
@pytest.mark.parametrize(("arrivals", "prompt", "outputs", "places", "budget"), [
    (1, 2, [3, 25], 24, 200),           # many find a place in one iteration
    (40, 30, [2, 6], 3, 60),            # most who wait have waited before
    (2, 3, [230, 260], 5, 40),          # texts beyond exact parts of shelves
])
def test_crowds_keep_the_rules(name, arrivals, prompt, outputs, places, budget):
    rng = Random(f"{name} {outputs}")
    own = {"andes": {"tokens_per_s": 400.0, "token_latency_ms": 1.0, "horizon_s": 0.2, "expected_ttft_s": 0.01,
                     "preemptions_per_request": 20.0, "running_bonus": 0.05},
           "fastserve": {"quantum_ms": 1.0, "quantum_ratio": 1.2, "starvation_s": 0.03}}[name]
    parameters = registry.load("scheduler", name).Parameters(
        max_num_seqs=places, max_num_batched_tokens=budget, **own)
    requests = [(arrival, rng.randint(1, prompt), rng.randint(*outputs), 0) for arrival in sorted(
        rng.randrange(arrivals) * MS + 1 for _ in range(20 if outputs[0] > 200 else 120))]
    replica = MODELS[name](parameters, 4000, 4)

    expected = ranked.serve(requests, replica, MS)

    assert replica.given_way > 100                  # for a place: there are blocks for all
    for fast_forward in (True, False):
        found = run(name, requests, parameters, 4000, 4, fast_forward=fast_forward).requests
        assert (found["completed_ns"].tolist(), found["preemptions"].tolist()) == expected, fast_forward
