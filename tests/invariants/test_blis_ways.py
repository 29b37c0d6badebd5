"""`scheduler = "blis"`: groups, planned runs and counted blocks lead where visits of every sequence and tables lead."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invariants import test_migration, test_views
from simulator.engine.build import build
from simulator.engine.plan import GatewayPlan, Hooks
from simulator.kv.blis_cache import BlisKV
from simulator.kv.blis_sparse import SparseBlisKV
from simulator.kv.counting import CountingKV
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.blis import Blis, BlisParameters
from support import engine
from support.blis_scenarios import long_scenario, parameters_of, small_scenario
from support.ways import Ways, assert_same_experiment
from support.workloads import plain_workload

SLOWLY = {"fast_forward": False, "tracks_identity": True}
WAYS = Ways(Blis, SLOWLY, ({}, {"fast_forward": False}), lambda rng, limits: parameters_of(
    rng, limits.max_num_seqs, limits.max_num_batched_tokens), long_scenario)


def test_small_scenarios_are_the_same_run():
    runs = [WAYS.assert_same(small_scenario(seed)) for seed in range(300)]

    assert sum(int(each.requests["preemptions"].sum()) for each in runs) > 200
    assert sum(int(each.requests["cached_tokens"].sum()) for each in runs) > 1000


# In 110 and 241 the head of the queue fits once blocks that it would have found are taken: a shorter chunk is enough.
@pytest.mark.parametrize("seed", [*range(30), 110, 241])
def test_long_traffic_is_the_same_run(seed):
    WAYS.assert_same(*long_scenario(seed))


@pytest.mark.parametrize("seed", range(40, 60))
def test_a_horizon_cuts_the_same_history(seed):
    WAYS.assert_same_up_to_a_horizon(seed)


def test_replicas_that_fail_come_and_go_do_the_same():
    for seed in range(60):
        WAYS.assert_same_upkeep(seed)


@test_migration.quickly
@given(test_migration.scenes(), st.booleans(), st.integers(0, 100))
def test_requests_that_move_do_the_same(scene, caching, seed):
    WAYS.assert_same_moves(scene, caching, seed)


@pytest.mark.parametrize("seed", range(30))
def test_whole_clusters_do_the_same(seed, tmp_path):
    assert_same_experiment(tmp_path, seed, lambda rng: [
        'engine.scheduler = "blis"', f'engine.preemption_policy = "{rng.choice(["fcfs", "priority"])}"',
        f"engine.long_prefill_token_threshold = {rng.choice([0, 7])}"])


# ---- who looks at replicas

def seen(seed, **way):
    scenario, replicas = long_scenario(seed)
    test_views.SEEN.clear()
    WAYS.run(scenario, replicas=replicas, front=GatewayPlan(test_views.Notes, None), **way)
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
    WAYS.assert_same_routes(name, seed)


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
