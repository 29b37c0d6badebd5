"""`scheduler = "sglang"`: groups and planned runs lead where visits of every sequence lead, whatever happens."""
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from invariants import test_migration, test_views
from invariants.test_invariants import assert_identical
from simulator.domain import records
from simulator.scheduling.sglang import Sglang
from simulator.scheduling.sglang_arguments import SglangParameters
from support.random_scenarios import random_description
from support.scenario import load
from support.sglang import random_parameters
from support.traffic import random_traffic
from support.ways import Ways, assert_same_experiment


def small_scenario(seed):
    """Return a `Scenario` of up to 16 requests."""
    return scenario_of(random_description(seed, beyond_vllm=True), Random(f"{seed}: sglang"))


def long_scenario(seed):
    """Return (a `Scenario` of 120 requests with long outputs, in most of which pages run out; replicas)."""
    rng, (description, replicas) = Random(f"{seed}: sglang"), random_traffic(seed)
    if rng.random() < 0.6:
        description["options"]["num_blocks"] = 1100 // description["options"]["block_size"]
    return scenario_of(description, rng), replicas


def scenario_of(description, rng):
    """Return the scenario under SGLang's scheduler."""
    options = description["options"]
    options["enable_prefix_caching"] = rng.random() < 0.8
    return replace(load(description), parameters=random_parameters(rng, options["max_num_seqs"]))


WAYS = Ways(Sglang, {"fast_forward": False}, ({},), lambda rng, limits: random_parameters(rng, limits.max_num_seqs),
            long_scenario)


def test_small_scenarios_are_the_same_run():
    runs = [WAYS.assert_same(small_scenario(seed)) for seed in range(300)]

    assert sum(int(each.requests["preemptions"].sum()) for each in runs) > 30
    assert sum(int(each.requests["cached_tokens"].sum()) for each in runs) > 1000
    for each in runs:           # who is left in a queue is named
        statuses = each.requests["status"]
        assert not (statuses == records.RUNNING).any()
        assert each.diagnosis or not (statuses == records.WAITING).any()


@pytest.mark.parametrize("seed", range(30))
def test_long_traffic_is_the_same_run(seed):
    WAYS.assert_same(*long_scenario(seed))


@pytest.mark.parametrize("seed", range(100, 160))
def test_where_batches_overlap_groups_that_stand_still_lead_to_the_same(seed):
    scenario, replicas = long_scenario(seed)
    rng = Random(f"{seed}: overlap")
    scenario = replace(scenario, parameters=structs.replace(
        scenario.parameters, disable_overlap_schedule=False, enable_mixed_chunk=(
            scenario.parameters.chunked_prefill_size > 0 and rng.random() < 0.5)))

    assert_identical(WAYS.run(scenario, replicas=replicas, fast_forward=False), WAYS.run(scenario, replicas=replicas))


# Of an answer that may be longer than 4096 tokens so many are expected until its rest is shorter.
@pytest.mark.parametrize(("max_tokens", "pools"), [(10, range(60, 160)), (4100, range(3000, 12_000, 90))])
@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("conservativeness", [1.0, 0.9])
def test_whether_one_may_come_is_decided_by_the_same_sum(max_tokens, pools, overlaps, conservativeness):
    admitted = set()
    for num_blocks in pools:
        scenario = load({"options": {"num_blocks": num_blocks, "block_size": 1, "max_num_seqs": 16}, "prices": {},
                         "requests": [{"id": str(row), "arrival": row // 3 * 1e-3, "prompt": [[f"{row}", 8]],
                                       "output_len": 4 + row % 7, "max_tokens": max_tokens} for row in range(20)]})
        scenario = replace(scenario, parameters=SglangParameters(
            max_running_requests=16, disable_overlap_schedule=not overlaps, schedule_conservativeness=conservativeness))
        fast = WAYS.run(scenario)
        assert_identical(fast, WAYS.run(scenario, fast_forward=False))
        admitted.add(tuple(fast.requests["scheduled_ns"]))
    assert len(admitted) > 5


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_whether_one_may_come_is_decided_by_the_same_rounding(seed, overlaps):
    # One prompt a batch, and 0.7 or 0.3 of what each answer may have is expected: where the sum is whole but for
    # rounding, in SGLang's order, and a pool is as large, the rounding decides
    rng = Random(seed)
    requests = [{"id": str(row), "arrival": 0.0, "prompt": [[f"{row}", 3]], "output_len": 2,
                 "max_tokens": rng.randint(2, 30)} for row in range(12)]
    for num_blocks in range(60, 260):
        scenario = replace(
            load({"options": {"num_blocks": num_blocks, "block_size": 1}, "prices": {}, "requests": requests}),
            parameters=SglangParameters(
                max_running_requests=16, prefill_max_requests=1, disable_overlap_schedule=not overlaps,
                schedule_conservativeness=1.0 if seed % 2 else 3 / 7))
        assert_identical(WAYS.run(scenario), WAYS.run(scenario, fast_forward=False))


@pytest.mark.parametrize("seed", range(40, 50))
def test_a_horizon_cuts_the_same_history(seed):
    WAYS.assert_same_up_to_a_horizon(seed)


def test_replicas_that_fail_come_and_go_do_the_same():
    for seed in range(60):
        WAYS.assert_same_upkeep(seed)


@test_migration.quickly
@given(test_migration.scenes(), st.booleans(), st.integers(0, 100))
def test_requests_that_move_do_the_same(scene, caching, seed):
    WAYS.assert_same_moves(scene, caching, seed)


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("seed", range(20))
def test_whole_clusters_do_the_same(seed, page, tmp_path):
    assert_same_experiment(tmp_path, seed, lambda rng: ['engine.scheduler = "sglang"', f"engine.block_size = {page}"], (
        "engine.policy", "engine.max_num", "engine.enable_chunked", "engine.long_prefill", "engine.watermark"))


@pytest.mark.parametrize("name", test_views.FRONTS)
@pytest.mark.parametrize("seed", range(60, 63))
def test_routers_decide_the_same(name, seed):
    WAYS.assert_same_routes(name, seed)
