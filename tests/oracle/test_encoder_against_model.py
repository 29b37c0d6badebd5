"""Batches with images agree with the executable model of vLLM on scenarios nobody recorded."""
from random import Random

import pytest

from support import engine, reference
from support.log import to_log
from support.random_scenarios import offloaded, prompt_tokens, random_description
from support.scenario import load
from support.vllm_scope import plain

pytestmark = pytest.mark.skipif(not reference.SECOND_MODEL.exists(), reason=f"no model at {reference.SECOND_MODEL}")
MAX_STEPS = 1500        # the scenarios take some 50; one that never ends is compared this far
SEEDS = range(200)


def with_items(seed):
    """Return a random scenario with images in prompts, and budgets of encoders that are tight."""
    description, rng = random_description(seed), Random(seed + 5)
    largest = 0
    for request in description["requests"]:
        end = prompt_tokens(request, description["requests"])
        at, items = rng.choice([0, 0, 1, 5]), []
        while at < end and len(items) < 4 and rng.random() < 0.8:
            length = min(rng.choice([1, 2, 7, 15, 30]), end - at)
            if rng.random() < 0.3:
                length = end - at                               # up to the end of the prompt
            items.append({"hash": f"{rng.choice('abcdef')}{length}", "offset": at, "length": length})
            largest = max(largest, length)
            at += length + rng.choice([0, 0, 1, 6])
        request["mm"] = items
    description["options"] |= {
        "max_num_encoder_input_tokens": max(largest, rng.choice([1, 20, 40, 100])),
        "encoder_cache_size": max(largest, 1, rng.choice([1, 30, 60, 200])),
        "disable_chunked_mm_input": rng.random() < 0.3}
    description["step_time"]["per_embed"] = rng.choice([0, 0.0001, 0.0003])
    return description


def under_pressure(seed):
    """Return one in which those of low priority lose their blocks in steps that encode for them.

    A prompt has at most eight items: vLLM and the model keep them in a set, whose order is theirs up to there.
    """
    description, rng = with_items(seed), Random(seed)
    options, step = description["options"], rng.choice([6, 10])
    options |= {"policy": "priority", "scheduler_reserve_full_isl": False, "enable_chunked_prefill": True,
                "watermark": 0, "max_num_batched_tokens": 64, "max_num_scheduled_tokens": None, "max_num_seqs": 8,
                "block_size": 4,
                "max_num_active_seqs": None, "long_prefill_token_threshold": step, "max_model_len": 512,
                "num_speculative_tokens": 0, "spec_lookahead": 0, "long_prefill_token_threshold_adaptive": False,
                "max_num_encoder_input_tokens": rng.choice([10, 12, 20]), "encoder_cache_size": 300, "num_blocks": 40}
    for number, request in enumerate(description["requests"]):
        tokens, first = rng.choice([60, 90]), rng.randint(0, 4)
        request |= {"priority": rng.choice([0, 1, 9 - number]), "prompt": [["uniq", tokens]], "mm": [
            {"hash": f"{number}.{at}", "offset": at, "length": step}
            for at in range(first, min(8 * step, tokens - step + 1), step)]}
    return description


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("made", [with_items, under_pressure])
@pytest.mark.parametrize("seed", SEEDS)
def test_model_finds_no_fault_in_the_engine(seed, made, fast_forward):
    description = made(seed)
    scenario = load(plain(description))
    recording = engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS)
    is_cut = sum(bool(step["scheduled"]) for step in recording.steps) >= MAX_STEPS

    fault = reference.judge_groups(description, to_log(recording, scenario.ids, scenario.contents), is_cut)
    assert fault is None, fault


@pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])
@pytest.mark.parametrize("seed", SEEDS)
def test_model_finds_no_fault_with_host_memory(seed, fast_forward):
    description = offloaded(with_items(seed), Random(seed))
    scenario = load(plain(description))
    log = to_log(engine.run(scenario, fast_forward=fast_forward, max_iterations=MAX_STEPS), scenario.ids,
                 scenario.contents)
    description["max_steps"] = len(log["steps"]) if len(log["steps"]) >= MAX_STEPS else 10 * MAX_STEPS

    fault = reference.judge_copies(description, log)
    assert fault is None, fault


@pytest.mark.parametrize("layers", [None, [1, 1]], ids=["one stage", "two stages"])
@pytest.mark.parametrize("seed", SEEDS)
def test_runs_of_iterations_at_once_change_nothing(seed, layers):
    description = with_items(seed)
    for request in description["requests"]:
        request["output_len"] *= 4
    scenario = load(plain(description))
    once, each = (engine.run(scenario, fast_forward=fast_forward, details=False, layers=layers)
                  for fast_forward in (True, False))

    for name in ("requests", "iterations", "replicas"):
        assert (getattr(once, name) == getattr(each, name)).all(), name
    assert once.token_times == each.token_times


def test_the_scenarios_crowd_the_encoder():
    runs = [engine.run(load(plain(with_items(seed))), max_iterations=MAX_STEPS).steps for seed in SEEDS]
    assert sum(any(step["encoder_evicted"] for step in steps) for steps in runs) > 100
    assert sum(any(step["preempted"] for step in steps) for steps in runs) > 50
