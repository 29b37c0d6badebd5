"""Pairs of replicas with groups of layers agree with the executable model of vLLM on scenarios nobody recorded."""
import pytest

from support import pd_pair, reference
from support.random_pairs import random_pair
from support.vllm_scope import missing_of_pair

pytestmark = pytest.mark.skipif(not reference.SECOND_MODEL.exists(), reason=f"no model at {reference.SECOND_MODEL}")


@pytest.mark.parametrize("kind", [None, "mamba"])
@pytest.mark.parametrize("seed", range(100))
def test_model_finds_no_fault_in_a_pair(seed, kind):
    description = random_pair(seed, kind)
    assert missing_of_pair(description) is None
    outcome = pd_pair.run(description)
    if pd_pair.finds_all_at_once(outcome):
        pytest.skip("a decode replica had all of a prompt: the model does not tell the prefill replica then")

    fault = reference.judge_pair(description, pd_pair.logs_of(description, outcome))
    assert fault is None, fault
