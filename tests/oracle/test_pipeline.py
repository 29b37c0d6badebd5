"""Engine and twin agree event by event with pipeline stages: several batches in flight, under every option."""
from random import Random

import pytest

from oracle.test_twin import MAX_STEPS, first_difference
from oracle.twin import simulate
from support import engine
from support.random_scenarios import random_description
from support.scenario import load

LAYERS = [(1, 1), (1, 2), (3, 1), (2, 3, 1), (1, 1, 1, 1)]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("seed", range(3000, 3200))
def test_engine_and_twin_agree_with_stages(seed, is_async):
    rng = Random(seed)
    description = random_description(seed, beyond_vllm=True)
    description["options"]["async_scheduling"] = is_async
    if is_async:
        description["options"] |= {"vllm_version": "0.32"} | rng.choice(
            [{}, {"num_speculative_tokens": 0, "spec_lookahead": 0}])
    if rng.random() < 0.5:                              # many at once: more to overlap
        for request in description["requests"]:
            request["arrival"] = round(request["arrival"] * 0.1, 6)
    scenario, layers = load(description), rng.choice(LAYERS)
    twin = simulate(scenario.workload, scenario.parameters, scenario.prices, host=scenario.host, layers=layers,
                    max_steps=MAX_STEPS, **scenario.cache)
    found = engine.run(scenario, layers=layers, fast_forward=seed % 3 > 0, max_iterations=MAX_STEPS)
    found.iterations = found.iterations[found.iterations["stage"] == 0]
    assert first_difference(twin, found) is None
    assert [step["stages"] for step in found.steps if "stages" in step] == [
        step["stages"] for step in twin.steps if step["scheduled"]][:len(found.steps)]
