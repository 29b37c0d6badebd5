"""Drafts under `scheduler = "sglang"`: what they reserve, find again and cost, and what is refused."""
import numpy as np
import pytest

import simulator
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.scheduling.sglang_drafts import SglangDrafts

TEXT = """
engine = {scheduler = "sglang", num_gpu_blocks = 400, block_size = 1, max_model_len = 1000}
latency.backend = "linear"
workload = {type = "trace", path = "trace.csv"}
"""
CHAIN = {"method": "eagle", "num_steps": 3, "drafter_share": 0.0, "acceptance": [3]}
TREE = CHAIN | {"num_steps": 5, "eagle_topk": 4, "num_draft_tokens": 8}
N_GRAMS = {"method": "ngram", "drafter_per_sequence_us": 0.0, "acceptance": [2]}


def read(folder, drafts, rows=("0,10,9,a:10",), **changes):
    (folder / "trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens,prompt", *rows, ""]))
    (folder / "a.toml").write_text(TEXT)
    return load_experiment(folder / "a.toml", {"engine.speculative": drafts} | {
        key.replace("__", "."): value for key, value in changes.items()})


@pytest.mark.parametrize(("keys", "page", "tokens"), [
    (CHAIN, 1, 4), (CHAIN, 16, 4), (TREE, 1, 20),
    (TREE, 16, 128),            # 15 of the last page and 5 steps are 2 pages, for each of 4 branches
    (N_GRAMS, 16, 12)])         # no drafter, no KV of drafts: as many as are verified
def test_tokens_that_a_decode_may_write(keys, page, tokens):
    keys = keys | {"acceptance": (1,)}
    assert SglangDrafts(**keys).decode_tokens(page) == tokens


def test_a_decode_reserves_twice_as_many_tokens_behind_the_text_in_kv(tmp_path):
    # 10 of the prompt; 8 behind them at the first decode; 4 tokens each in two decodes, the last of which ends the text
    result = simulator.run(read(tmp_path, CHAIN, engine__disable_overlap_schedule=True, output__iterations=True))
    assert result.iterations["used_blocks"].tolist() == [10, 18, 22]
    assert result.summary["speculation"] == {
        "num_drafts": 2, "num_draft_tokens": 6, "num_accepted_tokens": 6, "acceptance_rate": 1.0,
        "mean_acceptance_length": 4.0, "num_accepted_tokens_per_pos": [2] * 3,
        "per_position_acceptance_rates": [1.0] * 3}


def test_with_overlap_a_decode_is_chosen_before_the_one_in_front_has_ended(tmp_path):
    # At the first three 10, 10 and 14 tokens are known to be in KV
    result = simulator.run(read(tmp_path, CHAIN, ("0,10,21,a:10",), output__iterations=True))
    assert result.iterations["used_blocks"].tolist()[1:4] == [18, 18, 22]
    assert result.requests["output_tokens"].tolist() == [21]


@pytest.mark.parametrize(("drafts", "page", "hit"), [
    (CHAIN, 1, 82), (CHAIN | {"method": "draft_model"}, 1, 83), (N_GRAMS, 1, 83),
    (CHAIN, 4, 80), (N_GRAMS, 4, 80), (CHAIN, 83, 0), (N_GRAMS, 83, 83)])
def test_a_drafter_of_the_model_finds_a_token_with_the_next_one(drafts, page, hit, tmp_path):
    rows = ("0,84,2,a:84", "1,84,2,a:84")
    pages = {"engine__block_size": page, "engine__num_gpu_blocks": 800 // page}
    result = simulator.run(read(tmp_path, drafts, rows, **pages))
    assert result.requests["cached_tokens"].tolist() == [0, hit]


def test_texts_that_part_share_one_token_less(tmp_path):
    # Both begin with 40 tokens of a: the pair of the 40th and the next one is not the same
    rows = ("0,84,2,a:40/b:44", "1,84,2,a:40/c:44")
    assert simulator.run(read(tmp_path, CHAIN, rows)).requests["cached_tokens"].tolist() == [0, 39]
    assert simulator.run(read(tmp_path, N_GRAMS, rows)).requests["cached_tokens"].tolist() == [0, 40]


def test_routers_that_follow_caches_know_pairs(tmp_path):
    rows = ("0,84,2,a:40/b:44", "0,84,2,d:84", *(f"{i},84,2,a:40/c{i}:44" for i in (1, 2)))
    result = simulator.run(read(tmp_path, CHAIN, rows, topology__replicas=2, cluster__routing={
        "policy": "weighted", "scorers": [{"name": "precise-prefix-cache", "weight": 1.0}]}))
    assert len(set(result.requests["replica"][[0, 2, 3]].tolist())) == 1
    assert result.requests["cached_tokens"].tolist() == [0, 0, 39, 39]


@pytest.mark.parametrize(("model", "method", "numbers"), [
    ("llama-3.1-8b", "eagle", (5, 4, 8)), ("llama-3.1-8b", "draft_model", (3, 1, 4)), ("qwen3-8b", "eagle", (3, 1, 4)),
    (None, "eagle", (3, 1, 4)), (None, "ngram", (1, 10, 12))])
def test_numbers_that_a_server_chooses(model, method, numbers, tmp_path):
    drafts = {"method": method, "acceptance": [2]} | (
        {"drafter_per_sequence_us": 1.0} if method == "ngram" else {"drafter_share": 0.1})
    engine = read(tmp_path, drafts, **({"model__name": model} if model else {})).engine
    found = engine.parameters.speculative
    assert (found.num_steps, found.eagle_topk, found.num_draft_tokens) == numbers
    assert engine.parameters.max_running_requests == 48


@pytest.mark.parametrize(("drafts", "changes", "message"), [
    (CHAIN | {"num_draft_tokens": 6}, {}, "num_draft_tokens: expected num_steps + 1 = 4 for a chain (eagle_topk = 1)"),
    (CHAIN | {"eagle_topk": 4}, {}, "num_draft_tokens: missing; expected a number, since eagle_topk = 4"),
    (TREE | {"num_steps": 1}, {}, "num_draft_tokens: expected at most 5, the tokens of a tree of 1 steps with"),
    (CHAIN | {"acceptance": [4]}, {}, "no more than num_steps = 3 drafts can be accepted, found 4"),
    (TREE | {"num_draft_tokens": 3}, {}, "no more than num_draft_tokens - 1 = 2 drafts can be accepted, found 3"),
    ({"method": "eagle", "eagle_topk": 2}, {}, "eagle_topk: expected none without num_steps"),
    ({key: value for key, value in TREE.items() if key != "acceptance"}, {}, "since no measured acceptance of drafts"),
    ({"method": "eagle"}, {"model__name": "llama-3.1-8b"}, "speculative.acceptance: expected one that goes with"),
    (CHAIN | {"method": "medusa"}, {}, "engine.speculative.method"),
    (N_GRAMS, {"engine__enable_mixed_chunk": True}, 'enable_mixed_chunk: expected false with speculative.method = '),
    (CHAIN, {"model__name": "qwen3-next-80b-a3b", "hardware__name": "h200-sxm-141gb"}, "has recurrent states")])
def test_what_is_refused(drafts, changes, message, tmp_path):
    with pytest.raises(InputErrors) as caught:
        simulator.run(read(tmp_path, drafts, **changes))
    assert message in str(caught.value)


def test_drafts_take_the_time_of_their_passes(tmp_path):
    # A pass over the prompt; then two tokens a step beside each other, twice, and a pass over the six verified
    prices = {"backend": "linear", "base_us": 100.0, "per_sequence_us": 0.0, "per_prefill_token_us": 1.0,
              "per_decode_token_us": 10.0, "per_context_token_us": 0.0}
    drafts = CHAIN | {"eagle_topk": 2, "num_draft_tokens": 6, "drafter_share": 0.5, "drafter_forward_us": 7.0}
    result = simulator.run(read(tmp_path, drafts, ("0,10,5,a:10",), latency=prices, output__iterations=True))
    took_us = (result.iterations["duration_ns"] / 1000)[:2]
    assert took_us == pytest.approx([110 * 1.5 + 7, 160 * 1.5 + 2 * 0.5 * 120 + 3 * 7])
    assert np.isin(result.requests["output_tokens"], [5]).all()
