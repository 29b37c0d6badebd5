"""The engine does what the real vLLM 0.32 scheduler did, run by run, decision by decision; see README.md."""
from collections import Counter

import pytest

from support import engine, goldens
from support.log import first_difference, to_log
from support.scenario import load
from support.vllm_scope import missing, plain

CASES = goldens.case_paths()


def census():
    """Return how many scenarios were recorded, and what those that are left out need."""
    return len(CASES), Counter(reason for path in CASES if (reason := missing(goldens.known_scenario(path))))


@pytest.mark.skipif(not CASES, reason=f"no recorded runs under {goldens.GOLDENS}")
@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("path", goldens.parameters(CASES))
def test_engine_reproduces_the_recorded_run(path, fast_forward):
    log = goldens.read_log(path)
    description = goldens.with_grammars_seen(log, plain(goldens.read_scenario(path)))
    scenario = load(description, goldens.late_arrivals(log, description))
    num_computing = sum(bool(step["scheduled"]) for step in log["steps"])
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=num_computing + 2)
    difference = first_difference(log, to_log(recording, scenario.ids, scenario.contents), is_cut=log["summary"]["cut"])
    assert difference is None, difference
