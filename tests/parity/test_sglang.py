"""The engine does what the real SGLang 0.5.23 scheduler did, run by run, decision by decision; see README.md."""
from collections import Counter

import pytest

from support import goldens, sglang

CASES = sglang.case_paths()


def reason_of(path):
    """Return why a scenario is left out, or None."""
    description = goldens.read_scenario(path)
    return sglang.missing(description) or sglang.unsettled(goldens.read_log(path), description)


REASONS = {path: reason_of(path) for path in CASES}


def census():
    """Return how many scenarios were recorded, and what those that are left out need."""
    return len(CASES), Counter(reason for reason in REASONS.values() if reason)


def parameters():
    """Return the cases for pytest.mark.parametrize: those that are left out skip and say why."""
    return [pytest.param(path, id=goldens.case_name(path),
                         marks=[pytest.mark.skip(reason=f"needs {reason}")] if reason else [])
            for path, reason in REASONS.items()]


@pytest.mark.skipif(not CASES, reason=f"no recorded runs under {goldens.GOLDENS}")
@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("path", parameters())
def test_engine_reproduces_the_recorded_run(path, fast_forward):
    log = goldens.read_log(path)
    case = sglang.load(goldens.read_scenario(path), fast_forward)
    steps = sglang.run(case, limit=sum(step["mode"] != "none" for step in log["steps"]))
    difference = sglang.first_difference(log, steps, case.ids)
    assert difference is None, difference
