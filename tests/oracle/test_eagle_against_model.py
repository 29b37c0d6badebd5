"""Hits of drafters that read hidden states agree with the executable model of vLLM."""
import pytest

from support import engine, reference
from support.log import to_log
from support.random_scenarios import random_description
from support.scenario import load
from support.vllm_scope import plain

pytestmark = pytest.mark.skipif(not reference.SECOND_MODEL.exists(), reason=f"no model at {reference.SECOND_MODEL}")
MAX_STEPS = 1500        # the scenarios take some 50; one that never ends is compared this far
TRIED = {seed: random_description(seed)["options"] for seed in range(400)}
SEEDS = [seed for seed, options in TRIED.items()
         if options["num_speculative_tokens"] and options["enable_prefix_caching"]]


def with_eagle(seed, version):
    """Return a scenario whose drafts are EAGLE's."""
    description = random_description(seed)
    options = description["options"]
    options |= {"vllm_version": version, "eagle": True, "spec_lookahead": options["num_speculative_tokens"]}
    options["num_blocks"] += 2 * -(-options["num_speculative_tokens"] // options["block_size"])
    return description


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("version", ["0.32", "0.33"])
@pytest.mark.parametrize("seed", SEEDS)
def test_model_finds_no_fault_in_the_engine(seed, version, fast_forward):
    description = with_eagle(seed, version)
    scenario = load(plain(description))
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS)
    is_cut = sum(bool(step["scheduled"]) for step in recording.steps) >= MAX_STEPS

    fault = reference.judge_groups(description, to_log(recording, scenario.ids), is_cut)
    assert fault is None, fault
    if not is_cut:                              # by the books of blocks that nobody looks at
        counted = engine.run(scenario, fast_forward=fast_forward, details=False)
        assert counted.requests.tobytes() == recording.requests.tobytes()
