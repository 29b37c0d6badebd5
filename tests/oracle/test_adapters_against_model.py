"""Batches with a limit of LoRA adapters agree with the executable model of vLLM on scenarios nobody recorded."""
from random import Random

import pytest

from support import engine, reference
from support.log import to_log
from support.random_scenarios import random_description, with_offload
from support.scenario import load
from support.vllm_scope import limits_adapters, plain

pytestmark = pytest.mark.skipif(not reference.SECOND_MODEL.exists(), reason=f"no model at {reference.SECOND_MODEL}")
MAX_STEPS = 1500        # the scenarios take some 50; one that never ends is compared this far
SEEDS = range(120)


def with_adapters(description, seed):
    """Return a scenario whose requests ask for some of four adapters."""
    rng = Random(seed + 3)
    description["options"]["max_loras"] = rng.choice([1, 1, 2, 3])
    for request in description["requests"]:
        request["lora"] = rng.choice([None, 1, 1, 2, 3, 4])
    return description


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", SEEDS)
def test_model_finds_no_fault_in_the_engine(seed, fast_forward):
    description = with_adapters(random_description(seed), seed)
    scenario = load(plain(description))
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS)
    is_cut = sum(bool(step["scheduled"]) for step in recording.steps) >= MAX_STEPS

    fault = reference.judge_groups(description, to_log(recording, scenario.ids), is_cut)
    assert fault is None, fault


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", SEEDS)
def test_model_finds_no_fault_with_host_memory(seed, fast_forward):
    description = with_adapters(with_offload(seed), seed)
    scenario = load(plain(description))
    log = to_log(engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS), scenario.ids)
    description["max_steps"] = len(log["steps"]) if len(log["steps"]) >= MAX_STEPS else 10 * MAX_STEPS

    fault = reference.judge_copies(description, log)
    assert fault is None, fault


def test_the_scenarios_have_too_many_adapters():
    assert sum(limits_adapters(with_adapters(random_description(seed), seed)) for seed in SEEDS) > 60
