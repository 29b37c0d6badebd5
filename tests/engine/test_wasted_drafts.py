"""vLLM 0.33 computes no drafts in an iteration behind which no sequence can verify any: iterations by hand."""
import pytest

import simulator

# Iterations of 10 ms, and 2 ms for two drafts of all sequences; no draft is accepted, so that each brings one token.
TEXT = """
workload = {type = "trace", path = "trace.csv"}
[engine]
max_model_len = 1000
num_gpu_blocks = 500
max_num_batched_tokens = 64
max_num_seqs = 16
async_scheduling = %s
[engine.speculative]
method = "eagle"
num_tokens = 2
drafter_share = 0.0
drafter_forward_us = 1000.0
acceptance = {rates = [0.0, 0.0]}
[latency]
backend = "linear"
base_us = 10_000
per_sequence_us = 0
per_prefill_token_us = 0
per_context_token_us = 0
"""


@pytest.fixture
def durations(tmp_path):
    """Return the durations of iterations in ms, for requests of (arrival in s, prompt, outputs, max_tokens)."""
    def durations(requests, is_async=False, version="0.33", **keys):
        rows = ["arrived_at,num_prefill_tokens,num_decode_tokens,max_tokens"]
        (tmp_path / "trace.csv").write_text("\n".join(rows + [",".join(map(str, each)) for each in requests]))
        (tmp_path / "a.toml").write_text(TEXT % str(is_async).lower())
        found = simulator.run(tmp_path / "a.toml", {"engine.vllm_version": version} | {
            name.replace("__", "."): value for name, value in keys.items()}, out=tmp_path / "out", overwrite=True)
        return (found.iterations["duration_ns"] / 1e6).tolist()
    return durations


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("version", "last"), [("0.33", 10), ("0.32", 12)])
def test_the_last_token_of_max_tokens_needs_no_drafts(durations, version, last, is_async):
    assert durations([(0, 20, 3, 3)], is_async, version) == [12, 12, last]
    assert durations([(0, 20, 1, 1)], is_async, version) == [last]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stop_is_not_foreseen(durations, is_async):
    assert durations([(0, 20, 3, 4)], is_async)[:3] == [12, 12, 12]


@pytest.mark.parametrize("is_async", [False, True])
def test_one_sequence_that_goes_on_needs_drafts_for_all(durations, is_async):
    assert durations([(0, 20, 3, 3), (0, 20, 5, 5)], is_async) == [12, 12, 12, 12, 10]


def test_prompts_that_are_not_done_need_none_beside_one_that_ends(durations):
    # Beside the first request the second prompt gets 44 of 64 tokens, then 61 beside a token with two drafts; then 33.
    assert durations([(0, 20, 2, 2), (0, 138, 2, 2)]) == [12, 10, 12, 10]


def test_the_longest_text_ends_a_sequence_too(durations):
    assert durations([(0, 996, 9, 90)], engine__max_num_batched_tokens=2000)[-1] == 10


@pytest.mark.parametrize("is_async", [False, True])
def test_fast_forward_changes_no_duration(durations, is_async):
    requests = [(0.003 * number, 20 + 7 * number, 2 + number % 5, 2 + number % 5 + number % 2) for number in range(40)]
    fast, slow = (durations(requests, is_async, engine__fast_forward=on, engine__speculative__acceptance__rates=[
        0.6, 0.5]) for on in (True, False))

    assert fast == slow and 10 in fast
