"""The engine does what the real vLLM 0.32 scheduler did, run by run, decision by decision; see README.md."""
import pytest

from support import engine, goldens
from support.log import first_difference, to_log
from support.scenario import load

CASES = goldens.case_paths()
PARAMETERS = [pytest.param(path, id=goldens.case_name(path), marks=[pytest.mark.slow] if "_large_" in path.name else [])
              for path in CASES]

# Cases that cannot agree, by name, with the reason. There are none.
EXCEPTIONS = {}


@pytest.mark.skipif(not CASES, reason=f"no recorded runs under {goldens.GOLDENS}")
@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("path", PARAMETERS)
def test_engine_reproduces_the_recorded_run(path, fast_forward):
    description = goldens.read_scenario(path)
    if description["options"].get("kv_connector"):
        pytest.skip("not applicable: needs a KV connector")
    if goldens.case_name(path) in EXCEPTIONS:
        pytest.xfail(EXCEPTIONS[goldens.case_name(path)])
    log = goldens.read_log(path)
    scenario = load(description, goldens.late_arrivals(log))
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=len(log["steps"]) + 2)
    difference = first_difference(log, to_log(recording, scenario.ids), is_cut=log["summary"]["cut"])
    assert difference is None, difference
