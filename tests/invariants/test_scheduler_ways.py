"""Schedulers without async scheduling: groups and planned runs lead where visits of every sequence and tables lead."""
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from msgspec import structs

import simulator
from invariants import test_failures
from invariants.test_invariants import assert_identical
from invariants.test_pipeline_conservation import requests_of
from invariants.test_whole_cluster import experiment_of
from simulator import registry
from simulator.domain import records
from support import engine, upkeep
from support.random_scenarios import random_description
from support.scenario import load
from support.traffic import random_traffic

NAMES = ("andes", "edf", "fastserve", "sarathi_slo", "sjf_aging", "tensorrt_llm", "vtc")
SLOWLY = {"fast_forward": False, "tracks_identity": True}
WAYS = ({}, {"fast_forward": False}, {"coupled": True})


def scheduler_of(name):
    return registry.load("scheduler", name)


def parameters_of(name, rng, limits):
    if name == "tensorrt_llm":
        return tensorrt_llm_of(rng, limits)
    own = {"andes": {"expected_ttft_s": rng.choice([0.0, 0.1]), "tokens_per_s": rng.choice([5.0, 100.0]),
                     "token_latency_ms": rng.choice([5.0, 50.0]), "horizon_s": rng.choice([0.1, 1.0]),
                     "kv_watermark": rng.choice([0.0, 0.9])},
           "fastserve": {"quantum_ms": rng.choice([5.0, 20.0]), "starvation_s": rng.choice([0.1, 3.0]),
                         "prefill_us_per_token": rng.choice([None, 100.0])},
           "edf": {"default_deadline_ms": rng.choice([None, 50.0])},
           "sarathi_slo": {"tbt_slo_ms": rng.choice([4.0, 8.0]), "chunk_tokens": 24, "min_chunk_tokens": 4,
                           "chunk_step_tokens": 4},
           "sjf_aging": {"aging_tokens_per_s": rng.choice([0.0, 10.0, 1000.0])},
           "vtc": {"input_token_weight": rng.choice([0, 1, 3]), "output_token_weight": rng.choice([1, 2])}}
    return scheduler_of(name).Parameters(
        max_num_seqs=limits.max_num_seqs, max_num_batched_tokens=limits.max_num_batched_tokens,
        long_prefill_token_threshold=rng.choice([0, 0, 7, 40]), **own.get(name, {}))


def tensorrt_llm_of(rng, limits):
    chunked = rng.random() < 0.7
    return scheduler_of("tensorrt_llm").Parameters(
        max_batch_size=limits.max_num_seqs, max_num_tokens=limits.max_num_batched_tokens,
        capacity_scheduler_policy=rng.choice(["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "MAX_UTILIZATION",
                                              "STATIC_BATCH"]),
        enable_chunked_context=chunked, batching_type=rng.choice(["INFLIGHT", "INFLIGHT", "STATIC"]),
        context_chunking_policy=rng.choice(["FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"][:1 + chunked]))


def scenario_of(name, seed, description):
    """Return a `Scenario` with tenants, predictions and wishes."""
    rng, scenario = Random(f"{seed}: {name}"), load(description)
    demands, count = scenario.workload.demands, len(scenario.workload)
    demands["tenant"] = [rng.choice([-1, 0, 0, 0, 1, 2]) for _ in range(count)]
    demands["expected_tokens"] = [rng.choice([-1, 1, 5, 30]) for _ in range(count)]
    demands["due_ns"] = [rng.choice([-1, int(arrival) + rng.randint(0, 10**9)])
                         for arrival in scenario.workload.requests["arrival_ns"]]
    workload = structs.replace(scenario.workload, labels=dict(scenario.workload.labels) | {"tenant": ("x", "y", "z")})
    return replace(scenario, workload=workload, parameters=parameters_of(name, rng, scenario.parameters))


def long_scenario(name, seed):
    """Return (120 requests with long outputs, in most of which blocks run out; replicas)."""
    description, replicas = random_traffic(seed)
    if seed % 3:
        description["options"]["num_blocks"] = 1 + 1100 // description["options"]["block_size"]
    return scenario_of(name, seed, description), replicas


def run(name, scenario, **options):
    return engine.run(scenario, details=False, scheduler=scheduler_of(name), **options)


def assert_every_way_is_the_same(name, scenario, replicas=1):
    slow = run(name, scenario, replicas=replicas, **SLOWLY)
    for way in WAYS:
        assert_identical(slow, run(name, scenario, replicas=replicas, **way))
    return slow


@pytest.mark.parametrize("name", NAMES)
def test_small_scenarios_are_the_same_run(name):
    runs = [assert_every_way_is_the_same(name, scenario_of(name, seed, random_description(seed, beyond_vllm=True)))
            for seed in range(150)]

    # TensorRT-LLM's pauses nobody but under one of its policies, and gives prompts all blocks of their text
    assert sum(int(each.requests["preemptions"].sum()) for each in runs) > (5 if name == "tensorrt_llm" else 50)
    assert sum(int(each.requests["cached_tokens"].sum()) for each in runs) > 500


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(20))
def test_long_traffic_is_the_same_run(name, seed):
    slow = assert_every_way_is_the_same(name, *long_scenario(name, seed))

    assert set(slow.requests["status"].tolist()) <= set(range(records.COMPLETED, records.TIMED_OUT + 1))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "tensorrt_llm"])     # which knows none
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_with_pipeline_stages_everybody_is_served(name, stages, seed):
    scenario, replicas = long_scenario(name, seed)
    recording = run(name, scenario, replicas=replicas, layers=[4] * stages)

    assert set(recording.requests["status"].tolist()) <= set(range(records.COMPLETED, records.TIMED_OUT + 1))
    assert (recording.replicas["iterations"] > 0).all()
    assert_identical(recording, run(name, scenario, replicas=replicas, layers=[4] * stages, fast_forward=False))


@pytest.mark.parametrize("name", NAMES)
def test_replicas_that_fail_come_and_go_do_the_same(name):
    for seed in range(30):
        scenario, options = test_failures.scene(seed)
        scenario = replace(scenario, parameters=parameters_of(name, Random(seed), scenario.parameters))
        slow, *others = (upkeep.run(scenario, scheduler=scheduler_of(name), **(options | way | {"layers": None}))
                         for way in (SLOWLY, {}, {"fast_forward": False}))
        for other in others:
            for table in ("requests", "journeys", "replicas", "lifecycle"):
                np.testing.assert_array_equal(getattr(slow, table), getattr(other, table), err_msg=f"{seed}: {table}")
            assert (slow.token_times, slow.gaps) == (other.token_times, other.gaps)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(15))
def test_whole_clusters_do_the_same(name, seed, tmp_path):
    rng = Random(seed)
    (tmp_path / "requests.csv").write_text(requests_of(rng))
    of_vllm = ("engine.async_scheduling", "engine.speculative", "topology.pipeline_parallel")
    others = [line for line in experiment_of(rng).splitlines() if not line.startswith(of_vllm)]
    if name == "tensorrt_llm":
        others = [line.replace("engine.max_num_seqs", "engine.max_batch_size") for line in others]
        policy = rng.choice(["GUARANTEED_NO_EVICT", "MAX_UTILIZATION"])
        others.insert(0, f'engine.capacity_scheduler_policy = "{policy}"')
    (tmp_path / "experiment.toml").write_text("\n".join([f'engine.scheduler = "{name}"', *others]))

    known = {"workload.output_knowledge.predictor": "exact"} if name == "sjf_aging" else {}

    one, other = (simulator.run(tmp_path / "experiment.toml", {"engine.fast_forward": fast} | known)
                  for fast in (True, False))

    np.testing.assert_array_equal(one.requests, other.requests)
    np.testing.assert_array_equal(one.lifecycle, other.lifecycle)
    assert one.summary["itl_ms"] == other.summary["itl_ms"]
