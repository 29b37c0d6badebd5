"""The engine with KV offload agrees with the executable model of vLLM's connector on scenarios nobody recorded."""
from functools import partial
from random import Random

import pytest

from support import engine, reference
from support.log import to_log
from support.random_hybrid import with_group_offload
from support.random_scenarios import with_offload
from support.scenario import load
from support.vllm_scope import plain

pytestmark = pytest.mark.skipif(not reference.SECOND_MODEL.exists(), reason=f"no model at {reference.SECOND_MODEL}")
with_drafts = partial(with_offload, takes_drafts=True)
MAX_STEPS = 600         # the scenarios take some 50; one that never ends is compared this far


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", range(200))
def test_model_finds_no_fault_in_the_engine(seed, fast_forward):
    fault = fault_of(with_drafts(seed), fast_forward)

    assert fault is None, fault


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("with_", [with_drafts, with_group_offload])
@pytest.mark.parametrize("seed", range(200, 300))
def test_model_finds_no_fault_where_a_step_loads(seed, with_, fast_forward):
    description = with_(seed)
    description["options"]["vllm_version"] = "0.33"
    description["options"]["kv_offload"]["step_load_tokens"] = Random(seed).choice([20, 50, 200, 10_000])
    fault = fault_of(description, fast_forward)

    assert fault is None, fault


def fault_of(description, fast_forward):
    """Return what the model holds against our run of a scenario, or None."""
    scenario = load(plain(description))
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS)
    log = to_log(recording, scenario.ids)
    description["max_steps"] = len(log["steps"]) if len(log["steps"]) >= MAX_STEPS else 10 * MAX_STEPS
    return reference.judge_copies(description, log)


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", [*range(150), 21023, 21389, 21542, 21579, 21950])     # members that lack blocks
def test_model_finds_no_fault_where_layers_are_in_groups(seed, fast_forward):
    fault = fault_of(with_group_offload(seed), fast_forward)

    assert fault is None, fault
