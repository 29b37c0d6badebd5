"""Experiments with the host memory of BLIS up to v0.6.9; its recorded runs stand in parity/test_blis.py."""
import pytest

import simulator
from simulator.errors import InputErrors

EXPERIMENT = """
engine = {scheduler = "blis", upstream_compat = true, num_gpu_blocks = 11, max_model_len = 4096}
workload = {type = "trace", path = "trace.csv"}
kv_tiers = {protocol = "blis_offload", cpu_blocks = 60, offload_threshold = 0.3, tokens_per_us = 4.0, base_us = 15.0}
[latency]
backend = "linear"
base_us = 5000
per_sequence_us = 10
per_prefill_token_us = 20
per_context_token_us = 0
"""
SESSIONS = """
engine = {scheduler = "blis", upstream_compat = true, num_gpu_blocks = 60, max_model_len = 4096, max_num_seqs = 8}
latency = {backend = "linear", base_us = 5000}
kv_tiers = {protocol = "blis_offload", cpu_blocks = 90, offload_threshold = 0.5, base_us = 15.0}
[workload]
type = "sessions"
num_sessions = 30
arrival = {process = "poisson", rate_per_s = 20.0}
[workload.sessions]
rounds = {distribution = "uniform", min = 2, max = 5}
first_tokens = {distribution = "uniform", min = 20, max = 300}
new_tokens = {distribution = "uniform", min = 20, max = 100}
output_tokens = {distribution = "uniform", min = 1, max = 40}
think_time_s = {distribution = "exponential", mean = 0.5}
"""
# The first ends in the iteration in which it begins; the second runs on with four blocks of ten, then five; the third
# needs eight, and waits.
REQUESTS = [(0, 64, 1, "a:64"), (0, 64, 40, ""), (0.02, 128, 1, "")]
MOVES = ["stored_chunks", "loaded_chunks", "evicted_chunks", "thrashed_chunks", "used_chunks"]


def run(folder, text, changes=None, requests=()):
    """Run an experiment; each request is (arrival in s, prompt tokens, outputs, prompt)."""
    (folder / "trace.csv").write_text("\n".join([
        "arrived_at,num_prefill_tokens,num_decode_tokens,prompt",
        *(",".join(map(str, request)) for request in requests)]) + "\n")
    (folder / "offload.toml").write_text(text)
    return simulator.run(folder / "offload.toml", changes or {})


def test_blocks_move_when_a_request_ends_and_come_back_when_another_has_no_room(tmp_path):
    # At 0 the four full blocks of the first move; when the third comes, at 22.61 ms, they come back, 15 + 16 / 4 us
    # each, and it waits all the same. They cannot move again: when the second ends, nobody holds anything.
    result = run(tmp_path, EXPERIMENT, requests=REQUESTS)
    durations_us = (result.iterations["duration_ns"] // 1000).tolist()

    assert durations_us[:6] == [5020 + 20 * 128, 5010, 5010, 5010, 5010 + 4 * 19, 5010]
    assert durations_us[-1] == 5010 + 20 * 128
    assert result.kv_tiers[MOVES].tolist() == [(4, 4, 0, 0, 0)]
    assert result.summary["kv_tiers"][0]["waited_s"] == 76e-6


def test_what_comes_back_at_once_is_counted(tmp_path):
    # The first iteration takes 120 us, the next ones 110: the third request comes in the eighth, 780 us later.
    changes = {"latency.base_us": 100, "latency.per_prefill_token_us": 0}
    soon, late = (run(tmp_path, EXPERIMENT, changes, [*REQUESTS[:2], (at_s, 128, 1, "")]) for at_s in (0.0007, 0.001))

    assert soon.kv_tiers[MOVES].tolist() == [(4, 4, 0, 4, 0)]
    assert late.kv_tiers[MOVES].tolist() == [(4, 4, 0, 0, 0)]
    assert soon.summary["kv_tiers"][0]["thrashed_chunks"] == 4


@pytest.mark.parametrize(("threshold", "moved"), [(0.0, 4), (0.39, 4), (0.4, 0), (1.0, 0)])
def test_nothing_moves_up_to_the_threshold(tmp_path, threshold, moved):
    result = run(tmp_path, EXPERIMENT, {"kv_tiers.offload_threshold": threshold}, REQUESTS)

    assert result.kv_tiers["stored_chunks"].tolist() == [moved]


def test_what_has_moved_is_not_found_and_is_computed_again(tmp_path):
    prompts = [*REQUESTS[:2], (0.02, 64, 1, "a:64")]
    moved, kept = (run(tmp_path, EXPERIMENT, {"kv_tiers.offload_threshold": threshold}, prompts)
                   for threshold in (0.3, 0.9))

    assert (moved.summary["prefix_cache"]["hit_tokens"], kept.summary["prefix_cache"]["hit_tokens"]) == (0, 64)


def test_host_memory_takes_no_more_than_fits(tmp_path):
    result = run(tmp_path, EXPERIMENT, {"kv_tiers.cpu_blocks": 3}, REQUESTS[:2])

    assert result.kv_tiers[MOVES].tolist() == [(3, 0, 0, 0, 3)]


@pytest.mark.parametrize("changes", [
    {}, {"kv_tiers.offload_threshold": 0.0}, {"kv_tiers.cpu_blocks": 20}, {"engine.long_prefill_token_threshold": 24},
    {"engine.num_gpu_blocks": 40, "engine.blis_version": "0.7"},
], ids=str)
def test_runs_of_iterations_at_once_and_one_by_one_are_equal(tmp_path, changes):
    fast, slow = (run(tmp_path, SESSIONS, changes | {"engine.fast_forward": bulk}) for bulk in (True, False))

    assert (fast.requests == slow.requests).all()
    assert (fast.iterations == slow.iterations).all()
    assert (fast.kv_tiers == slow.kv_tiers).all()
    assert fast.summary == slow.summary
    assert int(fast.kv_tiers["stored_chunks"].sum()) > 0


def test_what_a_replica_has_lost_when_it_fails_cannot_come_back(tmp_path):
    failure = {"failures": [{"kind": "stop", "which": 0, "at_s": 0.01, "duration_s": 0.001}]}
    result = run(tmp_path, EXPERIMENT, failure, REQUESTS)

    assert result.kv_tiers[MOVES].tolist() == [(4, 0, 0, 0, 0)]


@pytest.mark.parametrize(("changes", "message"), [
    ({"kv_tiers.offload_threshold": 1.1}, r"kv_tiers\.offload_threshold: expected a number from 0 to 1, found 1\.1"),
    ({"kv_tiers.offload_threshold": -0.1}, r"kv_tiers\.offload_threshold: expected .* found -0\.1"),
    ({"kv_tiers.offload_threshold": float("nan")}, r"kv_tiers\.offload_threshold"),
    ({"kv_tiers.cpu_blocks": 0}, r"kv_tiers\.cpu_blocks: expected an integer from 1"),
    ({"kv_tiers.when_full": True}, "when_full"),
    ({"engine.scheduler": "vllm", "engine.upstream_compat": None},
     'with engine.scheduler = "vllm", found .*: it goes with scheduler "blis"'),
    ({"engine.upstream_compat": False}, r"engine\.upstream_compat: expected true with \[kv_tiers\], found false"),
    ({"engine.enable_prefix_caching": False}, r"engine\.enable_prefix_caching: expected true with \[kv_tiers\]"),
])
def test_what_it_does_not_go_with_is_refused(tmp_path, changes, message):
    text = EXPERIMENT
    if None in changes.values():
        text, changes = text.replace("upstream_compat = true, ", ""), {"engine.scheduler": "vllm"}
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, text, changes, [(0, 64, 1, "")])


def test_a_mirror_has_no_threshold(tmp_path):
    with pytest.raises(InputErrors, match="offload_threshold"):
        run(tmp_path, EXPERIMENT.replace("blis_offload", "blis_mirror"), {}, [(0, 64, 1, "")])
