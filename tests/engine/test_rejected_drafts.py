"""Drafts that a grammar rejects: what is verified instead, by hand and at random."""
from dataclasses import replace
from random import Random

import msgspec
import numpy as np
import pytest

import simulator
from simulator.core.random_streams import RandomStreams
from simulator.domain.grammar_drafts import GrammarDrafts
from simulator.errors import InputErrors
from simulator.latency.linear import Linear
from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm import VllmParameters
from simulator.scheduling.vllm_tables import StructuredOutputParameters
from support.engine import record, run
from support.random_scenarios import random_description
from support.random_speculation import random_speculation
from support.scenario import load
from support.traffic import random_traffic
from support.workloads import plain_workload

PROMPT, DRAFTS = 20, 4


def of_one(rate, accepted=DRAFTS, outputs=30, **keys):
    """Return the recording of one request with a grammar, and how many drafts it admits behind a text."""
    workload = plain_workload(0, PROMPT, outputs)
    workload.demands["grammar"], workload.labels = 0, {"grammar": ["g"]}
    parameters = VllmParameters(
        speculative=SpeculativeParameters(num_tokens=DRAFTS, acceptance=(accepted,)),
        structured_outputs=StructuredOutputParameters(compile_ms=0.0, mask_us=0.0, draft_valid_rate=rate), **keys)
    latency = Linear(Linear.Parameters(
        base_us=1000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0))
    recording = record(workload, parameters, latency, details=False, num_gpu_blocks=100, block_size=16,
                       max_model_len=1000, seed=3)
    key = int(RandomStreams(3).generator("grammar drafts").integers(0, 2**64, dtype=np.uint64))
    drafts = GrammarDrafts(rate, workload.demands, workload.numbers(), key)
    return recording, lambda text: drafts.admitted_drafts(0, text, DRAFTS)


@pytest.mark.parametrize("accepted", [2, DRAFTS])
@pytest.mark.parametrize("is_async", [False, True])
def test_steps_by_hand(accepted, is_async):
    # The prompt's step brings a token. Of the drafts behind a text only those that the grammar admits are verified;
    # where the steps are scheduled ahead, the places of the others are computed in vain.
    recording, admitted = of_one(0.7, accepted, async_scheduling=is_async)
    texts, valid = [PROMPT + 1], []
    while texts[-1] < PROMPT + 30:
        valid.append(admitted(texts[-1]))
        texts.append(texts[-1] + 1 + min(accepted, valid[-1]))

    tokens = recording.iterations["decode_tokens"].tolist()
    steps = tokens[1:1 + len(valid)]
    assert steps == [1 + (DRAFTS if is_async else count) for count in valid]
    brought = [sum(time == end for time in recording.token_times[0])
               for end in sorted(set(recording.token_times[0]))]
    assert brought[1:-1] == [1 + min(accepted, count) for count in valid[:-1]]
    counted = [0] * (DRAFTS + 1)
    for count in valid if is_async else [count for count in valid if count > 0]:
        counted[min(accepted, count)] += 1
    assert 0 < min(valid) + 1 < DRAFTS + 1 and max(valid) == DRAFTS
    assert recording.speculation == {
        "num_draft_tokens": sum(valid), "num_invalid_spec_tokens": sum(DRAFTS - count for count in valid),
        "steps": counted}


def test_a_grammar_that_rejects_everything_leaves_no_drafts():
    recording, _ = of_one(0.0, async_scheduling=False)
    assert recording.iterations["decode_tokens"].tolist() == [0] + [1] * 29
    assert recording.speculation == {
        "num_draft_tokens": 0, "num_invalid_spec_tokens": 4 * 29, "steps": [0] * 5}


def test_a_grammar_that_admits_everything_changes_nothing():
    one, _ = of_one(1.0, async_scheduling=False)
    assert one.iterations["decode_tokens"].tolist() == [0] + [5] * 6        # 1 + 6 x 5 of 30
    assert "num_invalid_spec_tokens" not in one.speculation


def scene(seed):
    """Return a random scenario of which some requests have grammars, and options of `run`."""
    rng = Random(seed)
    if rng.random() < 0.4:
        description, replicas = random_description(50_000 + seed, beyond_vllm=True), rng.choice([1, 1, 2])
    else:
        description, replicas = random_traffic(50_000 + seed)
    description["options"] |= {"async_scheduling": rng.random() < 0.3, "num_speculative_tokens": 0}
    for request in description["requests"]:
        if rng.random() < 0.4:
            request["grammar"] = {"compile": 0}
    scenario = load(description)
    parameters = msgspec.structs.replace(
        scenario.parameters, speculative=random_speculation(rng), structured_outputs=StructuredOutputParameters(
            compile_ms=0.0, mask_us=rng.choice([0.0, 30.0]), draft_valid_rate=rng.choice([0.0, 0.3, 0.6, 0.9])))
    return replace(scenario, parameters=parameters), {"replicas": replicas}


@pytest.mark.parametrize("seed", range(60))
def test_runs_taken_at_once_change_nothing(seed):
    scenario, options = scene(seed)
    one, other = (run(scenario, details=False, fast_forward=fast, **options) for fast in (True, False))
    for name in ("requests", "replicas"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    shown = [name for name in one.iterations.dtype.names if name != "spare"]
    np.testing.assert_array_equal(*(np.sort(each.iterations[shown], order=shown[:3]) for each in (one, other)))
    assert (one.token_times, one.speculation) == (other.token_times, other.speculation)


def test_the_scenes_are_worth_running():
    told = [run(scene(seed)[0], details=False, **scene(seed)[1]).speculation for seed in range(60)]
    assert sum(each.get("num_invalid_spec_tokens", 0) for each in told) > 2000
    assert sum(each["num_draft_tokens"] for each in told) > 20_000


TEXT = """
latency.backend = "linear"
engine = {num_gpu_blocks = 100, max_model_len = 1000, structured_outputs = {draft_valid_rate = 0.5}}
workload = {type = "trace", path = "trace.csv"}
"""


@pytest.mark.parametrize(("keys", "message"), [
    ({}, "draft_valid_rate: expected 1, found 0.5: no drafter"),
    ({"engine": {"speculative": {"num_tokens": 2}}}, "draft_valid_rate: expected 1, found 0.5: no request has")])
def test_a_rate_that_cannot_act_is_refused(tmp_path, keys, message):
    (tmp_path / "a.toml").write_text(TEXT)
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,10,10\n")
    with pytest.raises(InputErrors, match=message):
        simulator.run(tmp_path / "a.toml", keys)
