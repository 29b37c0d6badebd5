"""Ranks in lock step do what those of vLLM 0.32 did, forward by forward, message by message; see README.md."""
from collections import Counter

import pytest

from support import goldens, waves
from support.vllm_scope import missing_of_ranks

CASES = [path for path in goldens.case_paths() if "ranks" in goldens.known_scenario(path)]


def census():
    """Return how many waves were recorded, and what those that are left out need."""
    return len(CASES), Counter(reason for path in CASES if (reason := missing_of_ranks(goldens.known_scenario(path))))


@pytest.mark.skipif(not CASES, reason=f"no recorded waves under {goldens.GOLDENS}")
@pytest.mark.parametrize("path", [pytest.param(path, id=goldens.case_name(path)) for path in CASES])
def test_ranks_reproduce_the_recorded_waves(path):
    description = goldens.read_scenario(path)
    if reason := missing_of_ranks(description):
        pytest.skip(f"needs {reason}")
    scenario, recording = waves.run(description)

    difference = waves.first_difference(goldens.read_log(path), waves.to_log(scenario, recording))
    assert difference is None, difference


@pytest.mark.skipif(not CASES, reason=f"no recorded waves under {goldens.GOLDENS}")
@pytest.mark.parametrize("path", [pytest.param(path, id=goldens.case_name(path)) for path in CASES])
def test_taking_iterations_at_once_changes_nothing_of_a_recorded_wave(path):
    description = goldens.read_scenario(path)
    if reason := missing_of_ranks(description):
        pytest.skip(f"needs {reason}")
    runs = [waves.run(description, fast_forward=bulk, details=False)[1] for bulk in (True, False)]

    assert waves.tables(runs[0]) == waves.tables(runs[1])
