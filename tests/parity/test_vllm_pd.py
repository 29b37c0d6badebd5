"""A prefill and a decode replica do what a pair of real vLLM 0.32 schedulers did, step by step; see README.md."""
from collections import Counter

import pytest

from support import goldens, pd_pair
from support.vllm_scope import missing_of_pair

CASES = [path for path in goldens.case_paths() if pd_pair.is_pair(goldens.known_scenario(path))]


def census():
    """Return how many scenarios were recorded, and what those that are left out need."""
    return len(CASES), Counter(reason for path in CASES if (reason := missing_of_pair(goldens.known_scenario(path))))


@pytest.mark.skipif(not CASES, reason=f"no recorded pairs under {goldens.GOLDENS}")
@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("path", goldens.parameters(CASES, missing_of_pair))
def test_a_pair_of_replicas_reproduces_the_recorded_run(path, fast_forward):
    description = goldens.read_scenario(path)
    outcome = pd_pair.run(description, fast_forward=fast_forward)

    difference = pd_pair.difference(description, goldens.read_log(path), outcome)
    assert difference is None, difference
