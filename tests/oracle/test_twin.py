"""Engine and twin agree event by event on random scenarios: all options, both versions, deadlines, host times."""
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from oracle.twin import simulate
from support import engine
from support.random_scenarios import random_description
from support.scenario import load
from support.traffic import random_traffic

STEP_FIELDS = ("t_ns", "scheduled", "hits", "drafts", "preempted", "running", "waiting", "free_blocks", "evicted",
               "cached_hashes", "blocks", "free_queue")
END_FIELDS = ("finished", "free_blocks_end", "free_queue_end", "duration_ns")       # of steps that scheduled something
REQUEST_FIELDS = ("status", "enqueued_ns", "scheduled_ns", "first_token_ns", "completed_ns", "output_tokens",
                  "cached_tokens", "preemptions")


MAX_STEPS = 3000        # the scenarios take some 50; one that never ends is compared this far


def first_difference(twin, engine):
    """Return a readable account of the first difference between two recordings, or None."""
    is_cut = sum(bool(step["scheduled"]) for step in twin.steps) == MAX_STEPS
    if is_cut:
        twin.steps = twin.steps[:-2]                # not those still in flight
        engine.steps = engine.steps[:len(twin.steps)]
    iteration = 0
    for number, expected in enumerate(twin.steps):
        if number >= len(engine.steps):
            return f"step {number} is missing: {brief(expected)}"
        for name in STEP_FIELDS + (END_FIELDS if expected["scheduled"] else ()):
            if engine.steps[number][name] != expected[name]:
                return (f"step {number}, t = {expected['t_ns']} ns, {name}: twin {expected[name]}, "
                        f"engine {engine.steps[number][name]}")
        if expected["scheduled"]:
            found = {name: int(engine.iterations[iteration][name]) for name in expected["load"]}
            if found != expected["load"]:
                return f"step {number}, iteration {iteration}: twin {expected['load']}, engine {found}"
            iteration += 1
    if len(engine.steps) > len(twin.steps):
        return f"step {len(twin.steps)} is one too many: {brief(engine.steps[len(twin.steps)])}"
    if is_cut:
        return None
    for name in REQUEST_FIELDS:
        if engine.requests[name].tolist() != twin.requests[name].tolist():
            return f"requests, {name}: twin {twin.requests[name].tolist()}, engine {engine.requests[name].tolist()}"
    if engine.token_times != twin.token_times:
        return f"token times: twin {twin.token_times}, engine {engine.token_times}"
    return None


def brief(step):
    return {name: step[name] for name in ("t_ns", "scheduled", "running", "waiting", "preempted")}


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", range(1000, 1250))
def test_engine_and_twin_agree_event_by_event(seed, fast_forward):
    scenario = load(random_description(seed, beyond_vllm=True))
    twin = simulate(scenario.workload, scenario.parameters, scenario.prices, host=scenario.host, max_steps=MAX_STEPS,
                    **scenario.cache)
    difference = first_difference(twin, engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS))
    assert difference is None, difference


# In the last one a member is passed over by an iteration of nothing, while its token is in flight.
@pytest.mark.parametrize("seed", [*range(1300, 1400), 50153])
def test_engine_and_twin_agree_under_async_scheduling(seed):
    description = random_description(seed, beyond_vllm=True)
    description["options"] |= {"async_scheduling": True, "num_speculative_tokens": 0, "spec_lookahead": 0}
    scenario = load(description)
    twin = simulate(scenario.workload, scenario.parameters, scenario.prices, host=scenario.host, max_steps=MAX_STEPS,
                    **scenario.cache)
    assert first_difference(twin, engine.run(scenario, max_iterations=MAX_STEPS)) is None


@pytest.mark.parametrize("seed", range(1400, 1420))
def test_engine_and_twin_agree_on_masks_of_drafters_in_one_pass(seed):
    description = random_description(seed, beyond_vllm=True)
    options, drafts = description["options"], 1 + seed % 4
    options |= {"num_speculative_tokens": drafts, "spec_lookahead": drafts,
                "max_num_batched_tokens": max(options["max_num_batched_tokens"], 12)}
    description["spec_accept"] = [seed % 2, 0]
    scenario = load(description)
    speculative = structs.replace(
        scenario.parameters.speculative, method="draft_model", parallel_drafting=True, drafter_share=0.0)
    scenario = replace(scenario, parameters=structs.replace(scenario.parameters, speculative=speculative))
    twin = simulate(scenario.workload, scenario.parameters, scenario.prices, host=scenario.host, max_steps=MAX_STEPS,
                    **scenario.cache)
    assert first_difference(twin, engine.run(scenario, max_iterations=MAX_STEPS)) is None


@pytest.mark.parametrize("seed", range(2000, 2020))
def test_engine_and_twin_agree_on_longer_workloads(seed):
    # Round robin: replica k of n serves requests k, k + n, ...
    description, replicas = random_traffic(seed)
    scenario = load(description)
    recording = engine.run(scenario, replicas=replicas, details=False)
    for replica in range(replicas):
        rows = range(replica, len(scenario.workload), replicas)
        twin = simulate(scenario.workload, scenario.parameters, scenario.prices, host=scenario.host, rows=rows,
                        max_steps=20_000, details=False, **scenario.cache)
        for name in REQUEST_FIELDS:
            np.testing.assert_array_equal(recording.requests[name][rows], twin.requests[name][rows], err_msg=name)
        assert {row: times for row, times in recording.token_times.items() if row in rows} == twin.token_times
