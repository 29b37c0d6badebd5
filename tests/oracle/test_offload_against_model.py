"""The engine with KV offload agrees with the executable model of vLLM's connector on scenarios nobody recorded."""
import pytest

from support import engine, reference
from support.log import to_log
from support.random_scenarios import with_offload
from support.scenario import load

pytestmark = pytest.mark.skipif(not reference.SECOND_MODEL.exists(), reason=f"no model at {reference.SECOND_MODEL}")
MAX_STEPS = 600         # the scenarios take some 50; one that never ends is compared this far


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", range(200))
def test_model_finds_no_fault_in_the_engine(seed, fast_forward):
    description = with_offload(seed)
    scenario = load(description)
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS)
    log = to_log(recording, scenario.ids)
    description["max_steps"] = len(log["steps"]) if len(log["steps"]) >= MAX_STEPS else 10 * MAX_STEPS

    fault = reference.judge_copies(description, log)

    assert fault is None, fault
