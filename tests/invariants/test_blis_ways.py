"""`scheduler = "blis"`: groups, planned runs and counted blocks lead where visits of every sequence and tables lead."""
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
from simulator.engine.build import build
from simulator.engine.plan import GatewayPlan, Hooks
from simulator.kv.blis_cache import BlisKV
from simulator.kv.blis_sparse import SparseBlisKV
from simulator.kv.counting import CountingKV
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.blis import Blis, BlisParameters
from support import engine, upkeep
from support.blis_scenarios import long_scenario, parameters_of, small_scenario
from support.workloads import plain_workload

SLOWLY = {"fast_forward": False, "tracks_identity": True}
WAYS = ({}, {"fast_forward": False}, {"coupled": True})


def run(scenario, **options):
    return engine.run(scenario, details=False, scheduler=Blis, **options)


def assert_every_way_is_the_same(scenario, replicas=1):
    """Return a run, visited sequence by sequence and with block tables, that is the same in other ways."""
    slow = run(scenario, replicas=replicas, **SLOWLY)
    for way in WAYS:
        assert_identical(slow, run(scenario, replicas=replicas, **way))
    return slow


def test_small_scenarios_are_the_same_run():
    runs = [assert_every_way_is_the_same(small_scenario(seed)) for seed in range(300)]

    assert sum(int(each.requests["preemptions"].sum()) for each in runs) > 200
    assert sum(int(each.requests["cached_tokens"].sum()) for each in runs) > 1000


# In 110 and 241 the head of the queue fits once blocks that it would have found are taken: a shorter chunk is enough.
@pytest.mark.parametrize("seed", [*range(30), 110, 241])
def test_long_traffic_is_the_same_run(seed):
    assert_every_way_is_the_same(*long_scenario(seed))


@pytest.mark.parametrize("seed", range(40, 60))
def test_a_horizon_cuts_the_same_history(seed):
    scenario, replicas = long_scenario(seed)
    horizon_ns = int(run(scenario, replicas=replicas).requests["completed_ns"].max()) // 3
    assert_identical(run(scenario, replicas=replicas, horizon_ns=horizon_ns),
                     run(scenario, replicas=replicas, horizon_ns=horizon_ns, **SLOWLY))


def test_replicas_that_fail_come_and_go_do_the_same():
    for seed in range(60):
        scenario, options = test_failures.scene(seed)
        limits = scenario.parameters.max_num_seqs, scenario.parameters.max_num_batched_tokens
        scenario = replace(scenario, parameters=parameters_of(Random(seed), *limits))
        slow, *others = (upkeep.run(scenario, scheduler=Blis, **(options | way | {"layers": None}))
                         for way in (SLOWLY, {}, {"fast_forward": False}))
        for other in others:
            for table in ("requests", "journeys", "replicas", "lifecycle"):
                np.testing.assert_array_equal(getattr(slow, table), getattr(other, table), err_msg=f"{seed}: {table}")
            assert test_failures.shown(slow.iterations) == test_failures.shown(other.iterations)
            assert (slow.token_times, slow.gaps) == (other.token_times, other.gaps)


@test_migration.quickly
@given(test_migration.scenes(), st.booleans(), st.integers(0, 100))
def test_requests_that_move_do_the_same(scene, caching, seed):
    requests, moves, plan, limits, setup = scene
    scene = requests, moves, plan, parameters_of(
        Random(seed), limits.max_num_seqs, limits.max_num_batched_tokens), setup
    slow, *others = (test_migration.run(scene, scheduler=Blis, enable_prefix_caching=caching, **way)
                     for way in (SLOWLY, {}, {"fast_forward": False}))
    for other in others:
        test_migration.assert_same(slow, other)


@pytest.mark.parametrize("seed", range(30))
def test_whole_clusters_do_the_same(seed, tmp_path):
    rng = Random(seed)
    (tmp_path / "requests.csv").write_text(requests_of(rng))
    engine_lines = (f'scheduler = "blis"\npreemption_policy = "{rng.choice(["fcfs", "priority"])}"\n'
                    f"long_prefill_token_threshold = {rng.choice([0, 7])}").replace("\n", "\nengine.")
    others = [line for line in experiment_of(rng).splitlines() if not line.startswith("engine.async_scheduling")]
    (tmp_path / "experiment.toml").write_text("\n".join([f"engine.{engine_lines}", *others]))

    one, other = (simulator.run(tmp_path / "experiment.toml", {"engine.fast_forward": fast}) for fast in (True, False))

    np.testing.assert_array_equal(one.requests, other.requests)
    np.testing.assert_array_equal(one.lifecycle, other.lifecycle)
    assert one.summary["itl_ms"] == other.summary["itl_ms"]


# ---- who looks at replicas

def seen(seed, **way):
    scenario, replicas = long_scenario(seed)
    test_views.SEEN.clear()
    run(scenario, replicas=replicas, front=GatewayPlan(test_views.Notes, None), **way)
    return list(test_views.SEEN)


@pytest.mark.parametrize("seed", [*range(15), 59])      # 59: a look while members have no turn
def test_a_router_sees_the_same(seed):
    slow = seen(seed, **SLOWLY)
    for way in ({}, {"fast_forward": False}):
        for (now_ns, states, in_flight, cached), expected in zip(seen(seed, **way), slow, strict=True):
            assert now_ns == expected[0]
            for name in set(states.dtype.names) - {"spare"}:
                np.testing.assert_array_equal(states[name], expected[1][name], err_msg=name)
            np.testing.assert_array_equal(in_flight, expected[2])
            assert cached == expected[3]


@pytest.mark.parametrize("name", test_views.FRONTS)
@pytest.mark.parametrize("seed", range(60, 64))
def test_routers_decide_the_same(name, seed):
    scenario, replicas = long_scenario(seed)
    router = registry.load("router", name)
    front = GatewayPlan(router, router.Parameters(**test_views.FRONTS[name]))
    slow, *others = (run(scenario, replicas=max(replicas, 2), front=front, **way).requests for way in (SLOWLY, *WAYS))
    for other in others:
        np.testing.assert_array_equal(slow, other)


@pytest.mark.parametrize(("num_blocks", "parameters", "options", "kind"), [
    (100, {}, {}, CountingKV),                          # two texts of 40 blocks fit: nothing is ever left behind
    (60, {}, {}, SparseBlisKV),                         # they do not
    (60, {}, {"enable_prefix_caching": False}, CountingKV),
    (60, {}, {"tracks_identity": True}, BlisKV),                # somebody looks at tables
    (100, {"upstream_compat": True}, {}, BlisKV),               # a prompt found whole holds no block
    (100, {}, {"moves_requests": True}, SparseBlisKV)])
def test_blocks_have_tables_only_where_they_must(num_blocks, parameters, options, kind):
    workload = plain_workload(np.zeros(2), [600, 600], 16)      # 616 tokens of 16 in a block
    plan = engine.plan_of(BlisParameters(**parameters), Linear(LinearParameters()), scheduler=Blis, block_size=16,
                          num_gpu_blocks=num_blocks + 1, max_model_len=1000, **options)

    assert isinstance(build(workload, plan, Hooks()).fleet.replicas[0].scheduler.kv, kind)
