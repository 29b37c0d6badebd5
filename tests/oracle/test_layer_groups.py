"""Caches with groups of layers: twin, engine and the executable model agree on random scenarios."""
import numpy as np
import pytest

from oracle.test_twin import first_difference
from oracle.twin import simulate
from support import engine, reference
from support.log import to_log
from support.random_hybrid import hybrid_description, with_hits_inside
from support.scenario import load
from support.vllm_scope import groups_of

MAX_STEPS = 1500        # the scenarios take some 50; one that never ends is compared this far
REQUEST_FIELDS = ("status", "scheduled_ns", "first_token_ns", "completed_ns", "output_tokens", "cached_tokens",
                  "preemptions")


def scenario_of(description):
    return load(description | {"options": description["options"] | groups_of(description["options"])})


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", range(5000, 5150))
def test_engine_and_twin_agree_event_by_event(seed, fast_forward):
    scenario = scenario_of(hybrid_description(seed, beyond_vllm=True))
    twin = simulate(scenario.workload, scenario.parameters, scenario.prices, host=scenario.host, max_steps=MAX_STEPS,
                    **scenario.cache)
    difference = first_difference(twin, engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS))
    assert difference is None, difference


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", range(7000, 7120))
def test_engine_and_twin_agree_where_hits_end_inside_blocks(seed, fast_forward):
    scenario = scenario_of(with_hits_inside(seed))
    twin = simulate(scenario.workload, scenario.parameters, scenario.prices, host=scenario.host, max_steps=MAX_STEPS,
                    **scenario.cache)
    difference = first_difference(twin, engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS))
    assert difference is None, difference


@pytest.mark.skipif(not reference.SECOND_MODEL.exists(), reason=f"no model at {reference.SECOND_MODEL}")
@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", range(150))
def test_model_finds_no_fault_in_the_engine(seed, fast_forward):
    description = hybrid_description(seed)
    scenario = scenario_of(description)
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS)
    is_cut = sum(bool(step["scheduled"]) for step in recording.steps) >= MAX_STEPS
    fault = reference.judge_groups(description, to_log(recording, scenario.ids), is_cut)
    assert fault is None, fault


@pytest.mark.parametrize(("draw", "seed"), [(hybrid_description, seed) for seed in range(6000, 6120)]
                         + [(with_hits_inside, seed) for seed in range(6200, 6230)])
def test_what_nobody_looks_at_is_decided_alike(draw, seed):
    # with block tables, one iteration at a time; without, and runs of iterations at once
    scenario = scenario_of(draw(seed) if draw is with_hits_inside else draw(seed, beyond_vllm=True))
    named = engine.run(scenario, fast_forward=False)
    for fast_forward in (False, True):
        counted = engine.run(scenario, fast_forward=fast_forward, details=False)
        for name in REQUEST_FIELDS:
            np.testing.assert_array_equal(counted.requests[name], named.requests[name], err_msg=name)
        np.testing.assert_array_equal(counted.iterations, named.iterations)
        for name in ("used_block_ns", "peak_used_blocks", "busy_ns", "iterations", "preemptions"):
            np.testing.assert_array_equal(counted.replicas[name], named.replicas[name], err_msg=name)
        assert counted.token_times == named.token_times
