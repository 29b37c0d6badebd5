"""Experiments with BLIS's mirror in host memory; its recorded runs stand in parity/test_blis.py."""
import pytest

import simulator
from simulator.errors import InputErrors

EXPERIMENT = """
engine = {scheduler = "blis", upstream_compat = true, num_gpu_blocks = 11, max_model_len = 4096}
latency = {backend = "linear", base_us = 5000, per_sequence_us = 10, per_prefill_token_us = 20}
workload = {type = "trace", path = "trace.csv"}
kv_tiers = {protocol = "blis_mirror", cpu_blocks = 60, tokens_per_us = 4.0, base_us = 15.0}
"""
SESSIONS = """
engine = {scheduler = "blis", upstream_compat = true, num_gpu_blocks = 60, max_model_len = 4096, max_num_seqs = 8}
latency = {backend = "linear", base_us = 5000}
kv_tiers = {protocol = "blis_mirror", cpu_blocks = 90, base_us = 15.0}
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


def run(folder, text, changes=None, requests=()):
    """Run an experiment; each request is (arrival in s, prompt tokens, outputs, prompt)."""
    (folder / "trace.csv").write_text("\n".join([
        "arrived_at,num_prefill_tokens,num_decode_tokens,prompt",
        *(",".join(map(str, request)) for request in requests)]) + "\n")
    (folder / "mirror.toml").write_text(text)
    return simulator.run(folder / "mirror.toml", changes or {})


def test_what_comes_back_makes_the_iteration_longer_and_is_computed_all_the_same(tmp_path):
    # The second prompt takes all ten blocks; the first one then comes back, four blocks of 15 + 16 / 4 us each.
    requests = [(0, 64, 1, "a:64"), (1, 150, 1, ""), (2, 64, 1, "a:64")]
    result = run(tmp_path, EXPERIMENT, requests=requests)

    assert result.iterations["duration_ns"].tolist() == [6_290_000, 8_010_000, 6_290_000 + 4 * 19_000]
    assert result.kv_tiers[["stored_chunks", "loaded_chunks", "evicted_chunks"]].tolist() == [(13, 4, 0)]


def test_the_least_recently_run_for_goes_first(tmp_path):
    requests = [(0, 64, 1, "a:64"), (1, 150, 1, ""), (2, 64, 1, "a:64")]
    result = run(tmp_path, EXPERIMENT, {"kv_tiers.cpu_blocks": 10}, requests)

    # Three blocks of the first prompt went, so that nothing is found; the fourth goes as they come again.
    assert result.kv_tiers[["stored_chunks", "loaded_chunks", "evicted_chunks"]].tolist() == [(17, 0, 7)]


@pytest.mark.parametrize("changes", [
    {}, {"kv_tiers.when_full": True}, {"kv_tiers.cpu_blocks": 20}, {"engine.long_prefill_token_threshold": 24},
], ids=str)
def test_runs_of_iterations_at_once_and_one_by_one_are_equal(tmp_path, changes):
    fast, slow = (run(tmp_path, SESSIONS, changes | {"engine.fast_forward": bulk}) for bulk in (True, False))

    assert (fast.requests == slow.requests).all()
    assert (fast.iterations == slow.iterations).all()
    assert (fast.kv_tiers == slow.kv_tiers).all()
    assert fast.summary == slow.summary
    assert int(fast.kv_tiers["stored_chunks"].sum()) > 0


@pytest.mark.parametrize(("changes", "message"), [
    ({"engine.scheduler": "vllm", "engine.upstream_compat": None},
     'with engine.scheduler = "vllm", found .*: it goes with scheduler "blis"'),
    ({"engine.upstream_compat": False}, r"engine\.upstream_compat: expected true with \[kv_tiers\], found false"),
    ({"engine.enable_prefix_caching": False}, r"engine\.enable_prefix_caching: expected true with \[kv_tiers\]"),
])
def test_it_goes_with_blis_as_it_is_alone(tmp_path, changes, message):
    text = EXPERIMENT
    if None in changes.values():
        text, changes = text.replace("upstream_compat = true, ", ""), {"engine.scheduler": "vllm"}
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, text, changes, [(0, 64, 1, "")])
