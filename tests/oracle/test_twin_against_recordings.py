"""The twin does what the real scheduler did."""
import pytest

from oracle.twin import simulate
from support import goldens
from support.log import first_difference, to_log
from support.scenario import load

# The large cases (2,000 requests) are for the engine: the twin takes seconds for each and learns nothing from them.
CASES = [path for path in goldens.case_paths() if not goldens.case_name(path).startswith("3")]


@pytest.mark.skipif(not CASES, reason=f"no recorded runs under {goldens.GOLDENS}")
@pytest.mark.parametrize("path", CASES, ids=goldens.case_name)
def test_twin_reproduces_the_recorded_run(path):
    description = goldens.read_scenario(path)
    if description["options"].get("kv_connector"):
        pytest.skip("KV connector")
    log = goldens.read_log(path)
    scenario = load(description, goldens.late_arrivals(log))
    recording = simulate(scenario.workload, scenario.parameters, scenario.prices, max_steps=len(log["steps"]) + 2,
                         **scenario.cache)
    difference = first_difference(log, to_log(recording, scenario.ids), is_cut=log["summary"]["cut"])
    assert difference is None, difference
