"""Keys of vLLM about drafts: the last block of a hit with EAGLE, and thresholds that cut drafts."""
import pytest

import simulator
from simulator.errors import InputErrors
from simulator.scheduling.speculative import SpeculativeParameters
from simulator.scheduling.vllm_arguments import VllmParameters, most_running

TEXT = """
engine = {num_gpu_blocks = 100, max_model_len = 1024}
latency.backend = "linear"
workload = {type = "trace", path = "trace.csv"}
"""
EAGLE = {"method": "eagle", "num_tokens": 2, "drafter_share": 0.0}
LOOKAHEAD, DROP = "disable_lookahead_block_hashes", "disable_eagle_block_drop"


REPEATED = ("0,84,2,a:84", "1,84,2,a:84")
BESIDE_A_LONG_TEXT = ("0,9,900,b:9", "0,81,2,a:81", "1,81,2,a:81")      # a hit of 80 leaves one token


def run(folder, version, drafts, rows=REPEATED, model_name=None, **engine):
    (folder / "trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens,prompt", *rows, ""]))
    (folder / "a.toml").write_text(TEXT)
    model = {"model.name": model_name} if model_name else {}
    return simulator.run(folder / "a.toml", model | {
        "engine.vllm_version": version, "engine.speculative": drafts} | {
        f"engine.{key}": value for key, value in engine.items()})


@pytest.mark.parametrize(("version", "keys", "cached"), [
    ("0.32", {}, 64), ("0.32", {DROP: True}, 80), ("0.33", {}, 80), ("0.33", {LOOKAHEAD: True}, 64),
    ("0.33", {DROP: True}, 80)])
def test_the_last_block_of_a_hit(version, keys, cached, tmp_path):
    assert run(tmp_path, version, EAGLE | keys).requests["cached_tokens"].tolist() == [0, cached]


@pytest.mark.parametrize(("version", "cached"), [("0.32", 64), ("0.33", 80)])
def test_hits_of_a_drafter_with_a_block_of_drafts(version, cached, tmp_path):
    drafts = EAGLE | {"method": "dflash", "acceptance": [1]}
    assert run(tmp_path, version, drafts).requests["cached_tokens"].tolist() == [0, cached]


@pytest.mark.parametrize(("version", "method", "running"), [
    ("0.32", "dflash", 8), ("0.33", "dflash", 4), ("0.33", "dspark", 5)])
def test_no_more_requests_run_than_have_slots_of_a_block_of_drafts(version, method, running):
    # 4 or 3 slots each, of 16 tokens of an iteration
    drafts = SpeculativeParameters(method=method, num_tokens=3, drafter_share=0.0, acceptance=(0,))
    assert most_running(VllmParameters(
        vllm_version=version, speculative=drafts, max_num_batched_tokens=16, max_num_seqs=8)) == running


@pytest.mark.parametrize(("keys", "tokens"), [
    ({"method": "eagle3"}, [12, 12]),                                   # three requests verify 3 drafts each
    ({"method": "eagle3", "parallel_drafting": True}, [10, 10]),        # 4 + 2, 4 + 2, and 2 + 2 of 16
    ({"method": "dspark"}, [10, 10]), ({"method": "dflash"}, [8, 8]),   # 4 + 3, 4 + 3: 2 left for 3 masks
    ({"method": "draft_model", "parallel_drafting": True}, [8, 8])])
def test_masks_of_one_pass_take_tokens_of_the_batch(keys, tokens, tmp_path):
    drafts = EAGLE | {"num_tokens": 3, "acceptance": [0]} | keys
    found = run(tmp_path, "0.32", drafts, [f"0,1,40,{name}:1" for name in "abc"], max_num_batched_tokens=16,
                max_model_len=100, max_num_seqs=8, async_scheduling=False)

    assert found.iterations["decode_tokens"][1:3].tolist() == tokens


def test_masks_leave_room_for_a_token(tmp_path):
    drafts = EAGLE | {"method": "dflash", "num_tokens": 9, "acceptance": [0]}
    with pytest.raises(InputErrors, match="max_num_batched_tokens: expected more than 9, the masks of a request's"):
        run(tmp_path, "0.32", drafts, max_num_batched_tokens=9, max_num_seqs=2)


@pytest.mark.parametrize(("num_tokens", "shared", "cached"), [(1, 65, 64), (2, 65, 48), (2, 66, 64), (3, 66, 48)])
def test_hashes_reach_as_far_as_modules_in_turn(num_tokens, shared, cached, tmp_path):
    # Step-3.7-Flash has three modules. Of m tokens in common floor((m - L) / 16) blocks are found, L drafts.
    rows = ("0,84,2,a:84", f"1,84,2,a:{shared}/b:{84 - shared}")
    drafts = {"method": "mtp", "num_tokens": num_tokens, "drafter_share": 0.0, "acceptance": [0]}
    found = run(tmp_path, "0.33", drafts, rows, model_name="step-3.7-flash")

    assert found.requests["cached_tokens"].tolist() == [0, cached]


@pytest.mark.parametrize(("version", "drafts", "engine", "message"), [
    ("0.10", EAGLE | {DROP: True}, {}, r"disable_eagle_block_drop: .* vLLM 0\.10 has no such argument"),
    ("0.32", EAGLE | {LOOKAHEAD: True}, {}, r"disable_lookahead_block_hashes: .* vLLM 0\.32 has no such argument"),
    ("0.33", {"num_tokens": 2, LOOKAHEAD: True}, {}, "only hits of eagle, eagle3, mtp are cut; method = none"),
    ("0.33", EAGLE | {LOOKAHEAD: True}, {"enable_prefix_caching": False}, "enable_prefix_caching is false"),
    ("0.33", EAGLE | {LOOKAHEAD: True, DROP: True}, {}, "disable_eagle_block_drop is true, which disables these")])
def test_a_key_without_effect_is_refused(version, drafts, engine, message, tmp_path):
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, version, drafts, **engine)


@pytest.mark.parametrize(("version", "threshold", "rows", "is_fatal"), [
    ("0.10", 2, BESIDE_A_LONG_TEXT, False), ("0.32", 2, BESIDE_A_LONG_TEXT, True),
    ("0.33", 2, BESIDE_A_LONG_TEXT, True), ("0.33", 3, BESIDE_A_LONG_TEXT, False), ("0.33", 2, REPEATED, False)])
def test_a_threshold_that_cuts_the_padding_of_an_admission_ends_the_run(version, threshold, rows, is_fatal, tmp_path):
    drafts = {"num_tokens": 2, "num_lookahead_tokens": 2}
    if not is_fatal:
        assert run(tmp_path, version, drafts, rows, long_prefill_token_threshold=threshold).summary["complete"]
        return
    with pytest.raises(InputErrors, match=r"expected 0, or more than engine\.speculative\.num_tokens = 2, found 2"):
        run(tmp_path, version, drafts, rows, long_prefill_token_threshold=threshold)
