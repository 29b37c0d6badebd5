"""Requests that wait for grammars agree with the executable model of vLLM on scenarios nobody recorded."""
from random import Random

import pytest

from support import engine, reference
from support.log import to_log
from support.random_scenarios import random_description, with_offload
from support.scenario import load
from support.vllm_scope import plain

pytestmark = pytest.mark.skipif(not reference.SECOND_MODEL.exists(), reason=f"no model at {reference.SECOND_MODEL}")
MAX_STEPS = 1500        # the scenarios take some 50; one that never ends is compared this far
SEEDS = range(120)


def with_grammars(description, seed, may_fail=True):
    """Return a scenario in which some requests have a grammar, of which some take no time, and some fail."""
    rng = Random(seed + 5)
    for request in description["requests"]:
        if rng.random() < 0.5:
            request["grammar"] = {"compile": rng.choice([0.0, 0.001, 0.02, 0.1, 0.4]),
                                  "error": may_fail and rng.random() < 0.2}
    return description


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", SEEDS)
def test_model_finds_no_fault_in_the_engine(seed, fast_forward):
    description = with_grammars(random_description(seed), seed)
    scenario = load(plain(description))
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS)
    is_cut = sum(bool(step["scheduled"]) for step in recording.steps) >= MAX_STEPS

    fault = reference.judge_groups(description, to_log(recording, scenario.ids), is_cut)
    assert fault is None, fault


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", [*SEEDS, 163])         # the last: a load beside a text that is computed whole
def test_model_finds_no_fault_with_host_memory_and_drafts(seed, fast_forward):
    description = with_grammars(with_offload(seed, takes_drafts=True), seed, may_fail=False)
    scenario = load(plain(description))
    log = to_log(engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS), scenario.ids)
    description["max_steps"] = len(log["steps"]) if len(log["steps"]) >= MAX_STEPS else 10 * MAX_STEPS

    fault = reference.judge_copies(description, log)
    assert fault is None, fault
