"""Ranks in lock step agree with the executable model of vLLM on scenarios nobody recorded."""
import pytest

from support import reference, waves
from support.random_waves import random_waves

pytestmark = pytest.mark.skipif(not reference.SECOND_MODEL.exists(), reason=f"no model at {reference.SECOND_MODEL}")


@pytest.mark.parametrize("seed", range(200))
def test_model_finds_no_fault_in_ranks(seed):
    description = random_waves(seed)
    scenario, recording = waves.run(description)

    fault = reference.judge_waves(description, waves.to_log(scenario, recording))
    assert fault is None, fault


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("seed", range(200))
def test_taking_iterations_at_once_changes_nothing(seed, is_async):
    description = random_waves(seed)
    description["options"]["async_scheduling"] = is_async
    runs = [waves.run(description, fast_forward=bulk, details=False)[1] for bulk in (True, False)]

    assert waves.tables(runs[0]) == waves.tables(runs[1])
