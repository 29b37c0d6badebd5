"""The twin does what the real scheduler did."""
import pytest

from oracle.twin import simulate
from support import goldens
from support.log import first_difference, to_log
from support.scenario import load
from support.vllm_scope import missing_in_twin, plain

# The large cases (2,000 requests) are for the engine: the twin takes seconds for each and learns nothing from them.
CASES = [path for path in goldens.case_paths() if not goldens.is_large(goldens.known_scenario(path))]


@pytest.mark.skipif(not CASES, reason=f"no recorded runs under {goldens.GOLDENS}")
@pytest.mark.parametrize("path", goldens.parameters(CASES, missing_in_twin))
def test_twin_reproduces_the_recorded_run(path):
    description = plain(goldens.read_scenario(path))
    log = goldens.read_log(path)
    scenario = load(description, goldens.late_arrivals(log, description))
    num_computing = sum(bool(step["scheduled"]) for step in log["steps"])
    recording = simulate(scenario.workload, scenario.parameters, scenario.prices, max_steps=num_computing + 2,
                         **scenario.cache)
    difference = first_difference(log, to_log(recording, scenario.ids), is_cut=log["summary"]["cut"])
    assert difference is None, difference
