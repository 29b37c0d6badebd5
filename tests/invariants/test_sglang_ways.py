"""`scheduler = "sglang"`: groups and planned runs lead where visits of every sequence lead, whatever happens."""
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simulator
from invariants import test_failures, test_migration, test_views
from invariants.test_invariants import assert_identical
from invariants.test_pipeline_conservation import requests_of
from invariants.test_whole_cluster import experiment_of
from simulator import registry
from simulator.domain import records
from simulator.engine.plan import GatewayPlan
from simulator.scheduling.sglang import Sglang
from support import engine, upkeep
from support.random_scenarios import random_description
from support.scenario import load
from support.sglang import random_parameters
from support.traffic import random_traffic

SLOWLY = {"fast_forward": False}
WAYS = ({}, {"coupled": True})


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


def run(scenario, **options):
    """Return the recording of a run."""
    return engine.run(scenario, details=False, scheduler=Sglang, **options)


def assert_every_way_is_the_same(scenario, replicas=1):
    """Return a run, visited sequence by sequence, that is the same in other ways."""
    slow = run(scenario, replicas=replicas, **SLOWLY)
    for way in WAYS:
        assert_identical(slow, run(scenario, replicas=replicas, **way))
    return slow


def test_small_scenarios_are_the_same_run():
    runs = [assert_every_way_is_the_same(small_scenario(seed)) for seed in range(300)]

    assert sum(int(each.requests["preemptions"].sum()) for each in runs) > 40
    assert sum(int(each.requests["cached_tokens"].sum()) for each in runs) > 1000
    for each in runs:           # who is left in a queue is named
        statuses = each.requests["status"]
        assert not (statuses == records.RUNNING).any()
        assert each.diagnosis or not (statuses == records.WAITING).any()


@pytest.mark.parametrize("seed", range(30))
def test_long_traffic_is_the_same_run(seed):
    assert_every_way_is_the_same(*long_scenario(seed))


@pytest.mark.parametrize("seed", range(40, 50))
def test_a_horizon_cuts_the_same_history(seed):
    scenario, replicas = long_scenario(seed)
    horizon_ns = int(run(scenario, replicas=replicas).requests["completed_ns"].max()) // 3
    assert_identical(run(scenario, replicas=replicas, horizon_ns=horizon_ns),
                     run(scenario, replicas=replicas, horizon_ns=horizon_ns, **SLOWLY))


def test_replicas_that_fail_come_and_go_do_the_same():
    for seed in range(60):
        scenario, options = test_failures.scene(seed)
        scenario = replace(scenario, parameters=random_parameters(Random(seed), scenario.parameters.max_num_seqs))
        slow, other = (upkeep.run(scenario, scheduler=Sglang, **(options | way | {"layers": None}))
                       for way in (SLOWLY, {}))
        for table in ("requests", "journeys", "replicas", "lifecycle"):
            np.testing.assert_array_equal(getattr(slow, table), getattr(other, table), err_msg=f"{seed}: {table}")
        assert test_failures.shown(slow.iterations) == test_failures.shown(other.iterations)
        assert (slow.token_times, slow.gaps) == (other.token_times, other.gaps)


@test_migration.quickly
@given(test_migration.scenes(), st.booleans(), st.integers(0, 100))
def test_requests_that_move_do_the_same(scene, caching, seed):
    requests, moves, plan, limits, setup = scene
    scene = requests, moves, plan, random_parameters(Random(seed), limits.max_num_seqs), setup
    slow, other = (test_migration.run(scene, scheduler=Sglang, enable_prefix_caching=caching, **way)
                   for way in (SLOWLY, {}))
    test_migration.assert_same(slow, other)


@pytest.mark.parametrize("seed", range(20))
def test_whole_clusters_do_the_same(seed, tmp_path):
    rng = Random(seed)
    (tmp_path / "requests.csv").write_text(requests_of(rng))
    of_vllm = ("engine.async_scheduling", "engine.speculative", "topology.pipeline_parallel", "engine.policy",
               "engine.max_num", "engine.enable_chunked", "engine.long_prefill", "engine.watermark")
    others = [line for line in experiment_of(rng).splitlines() if not line.startswith(of_vllm)]
    (tmp_path / "experiment.toml").write_text("\n".join(['engine.scheduler = "sglang"', *others]))

    one, other = (simulator.run(tmp_path / "experiment.toml", {"engine.fast_forward": fast}) for fast in (True, False))

    np.testing.assert_array_equal(one.requests, other.requests)
    np.testing.assert_array_equal(one.lifecycle, other.lifecycle)
    assert one.summary["itl_ms"] == other.summary["itl_ms"]


@pytest.mark.parametrize("name", test_views.FRONTS)
@pytest.mark.parametrize("seed", range(60, 63))
def test_routers_decide_the_same(name, seed):
    scenario, replicas = long_scenario(seed)
    router = registry.load("router", name)
    front = GatewayPlan(router, router.Parameters(**test_views.FRONTS[name]))
    slow, *others = (run(scenario, replicas=max(replicas, 2), front=front, **way).requests for way in (SLOWLY, *WAYS))
    for other in others:
        np.testing.assert_array_equal(slow, other)
