"""Runs that cannot go on end, say why, and lose nobody."""
import pytest

import simulator
from simulator.domain import records
from support import engine
from support.scenario import load

PRICES = {"base_us": 5000.0}
every_way = pytest.mark.parametrize("fast_forward", [True, False], ids=["fast_forward", "stepwise"])


def serve(fast_forward, options, *requests):
    described = [{"id": request_id, "arrival": 0.0, "output_len": outputs, "prompt": [["uniq", prompt]]}
                 for request_id, prompt, outputs in requests]
    scenario = load({"options": options, "prices": PRICES, "requests": described})
    return engine.run(scenario, details=False, fast_forward=fast_forward)


# 4 usable blocks of 4 tokens: a request of 10 + 20 tokens grows past them, and has to let itself go.
SMALL = {"num_blocks": 5, "block_size": 4, "max_num_batched_tokens": 8, "enable_prefix_caching": False}


@every_way
def test_a_request_that_outgrows_the_cache_is_diagnosed_as_livelock(fast_forward):
    # Admitted by its first chunk, it computes 16 tokens, finds no block for the next and starts again, for ever.
    recording = serve(fast_forward, SMALL | {"scheduler_reserve_full_isl": False}, ("a", 10, 20))
    assert not recording.complete
    assert len(recording.diagnosis) == 1 and "livelock" in recording.diagnosis[0]
    assert recording.requests["output_tokens"].tolist() == [7]      # the 17th token is sampled, its slot is not there
    assert recording.requests["status"][0] in (records.WAITING, records.RUNNING)


def test_a_request_that_restarts_from_scratch_for_ever_is_told(tmp_path):
    # BLIS begins it anew each time it needs an eighth block, and each time it samples tokens before.
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,100,50\n0,10,3\n")
    (tmp_path / "experiment.toml").write_text(
        engine.TEN_MS.replace("num_gpu_blocks = 100", 'scheduler = "blis", num_gpu_blocks = 8').replace(
            ", async_scheduling = false", ""))
    result = simulator.run(tmp_path / "experiment.toml")

    assert result.requests["status"].tolist() == [records.WAITING, records.WAITING]
    assert result.summary["diagnosis"] == [
        "of 2 requests none was served: 2 still waited at the end of the run",
        "replica 0: livelock: request 0 outgrows all 7 KV blocks and begins anew for ever, 1 behind it wait: give "
        "more blocks"]


@every_way
def test_a_queue_behind_what_never_fits_is_diagnosed_as_stuck(fast_forward):
    # It may come back only whole: 17 tokens need 5 blocks of 4. b waits behind it.
    recording = serve(fast_forward, SMALL | {"max_num_seqs": 1}, ("a", 10, 20), ("b", 4, 1))
    assert len(recording.diagnosis) == 1 and "stuck" in recording.diagnosis[0]
    assert recording.requests["status"].tolist() == [records.WAITING, records.WAITING]
    assert recording.requests["output_tokens"].tolist() == [7, 0]


@pytest.mark.parametrize("scheduler", [
    "edf", "sarathi_slo", "sjf_aging", "vtc", 'tensorrt_llm", capacity_scheduler_policy = "MAX_UTILIZATION'])
@every_way
def test_a_request_that_outgrows_the_cache_is_diagnosed(scheduler, fast_forward, tmp_path):
    # its text comes back only whole, and needs 8 blocks of 16
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,100,50\n0,10,3\n")
    (tmp_path / "experiment.toml").write_text(
        engine.TEN_MS.replace("num_gpu_blocks = 100", f'scheduler = "{scheduler}", num_gpu_blocks = 8').replace(
            ", async_scheduling = false", ", block_size = 16"))
    known = {"sjf_aging": {"workload.output_knowledge.predictor": "exact"},
             "edf": {"engine.default_deadline_ms": 1e9}}.get(scheduler, {})
    result = simulator.run(tmp_path / "experiment.toml", {"engine.fast_forward": fast_forward} | known)

    assert result.requests["status"][0] == records.WAITING
    *unserved, stuck = result.summary["diagnosis"]
    assert "stuck" in stuck and all(each.startswith("of 2 requests ") for each in unserved) and len(unserved) <= 1


@every_way
def test_a_prompt_larger_than_the_cache_is_dropped_and_the_others_go_on(fast_forward):
    recording = serve(fast_forward, SMALL, ("a", 17, 1), ("b", 4, 1))
    assert recording.requests["status"].tolist() == [records.DROPPED, records.COMPLETED]
    assert not recording.diagnosis


@every_way
def test_a_prompt_that_leaves_no_room_for_a_token_is_rejected(fast_forward):
    recording = serve(fast_forward, {"max_model_len": 64}, ("a", 64, 1), ("b", 63, 5))
    assert recording.requests["status"].tolist() == [records.REJECTED, records.COMPLETED]
    assert recording.requests["output_tokens"].tolist() == [0, 1]


@every_way
def test_a_prompt_that_needs_too_many_blocks_at_once_is_told_what_helps(fast_forward, tmp_path):
    # 185 tokens take 12 blocks of 16 in both groups of gpt-oss, 24 of 23. In parts of 128 the window of 128 passes none
    # before the last; in parts of 64 it does.
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,185,5\n")
    (tmp_path / "experiment.toml").write_text(engine.TEN_MS.replace("llama-3.1-8b", "gpt-oss-20b").replace(
        "num_gpu_blocks = 100", "num_gpu_blocks = 24, scheduler_reserve_full_isl = false"))
    keys = {"engine.fast_forward": fast_forward, "engine.block_size": 16, "model.name": "gpt-oss-20b"}
    for budget in (128, 8192):
        keys["engine.max_num_batched_tokens"] = budget
        *_, stuck = simulator.run(tmp_path / "experiment.toml", keys).summary["diagnosis"]
        assert stuck == (
            f"replica 0: stuck: request 0 and 0 behind it wait for ever: in iterations of up to {budget:,} tokens its "
            "prompt needs 24 KV blocks, the replica has 23; windows give blocks back only behind an iteration: lower "
            "max_num_batched_tokens, or give more blocks")
    served = simulator.run(tmp_path / "experiment.toml", keys | {"engine.max_num_batched_tokens": 64})

    assert served.summary["complete"]
