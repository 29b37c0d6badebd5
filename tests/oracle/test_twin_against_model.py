"""The twin and the engine agree with the executable model of vLLM's scheduler on scenarios nobody recorded."""
import pytest

from oracle.twin import simulate
from support import engine, reference
from support.log import to_log
from support.random_scenarios import random_description, with_connector
from support.scenario import load

pytestmark = pytest.mark.skipif(not reference.MODEL.exists(), reason=f"no executable model at {reference.MODEL}")
MAX_STEPS = 1000        # the scenarios take some 50; one that never ends is compared this far


@pytest.mark.parametrize("seed", range(100))
def test_model_finds_no_fault_in_the_twin(seed):
    description = random_description(seed)
    scenario = load(description)
    recording = simulate(scenario.workload, scenario.parameters, scenario.prices, max_steps=MAX_STEPS,
                         **scenario.cache)
    fault = reference.judge(description, to_log(recording, scenario.ids), is_cut=len(recording.steps) >= MAX_STEPS)
    assert fault is None, fault


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize(("describe", "seed"), [*((random_description, seed) for seed in range(100, 300)),
                                                *((with_connector, seed) for seed in range(300, 450))])
def test_model_finds_no_fault_in_the_engine(describe, seed, fast_forward):
    description = describe(seed)
    scenario = load(description)
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS)
    fault = reference.judge(description, to_log(recording, scenario.ids), is_cut=len(recording.steps) >= MAX_STEPS)
    assert fault is None, fault
