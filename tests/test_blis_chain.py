"""Experiments with BLIS's chain of tiers; its recorded runs stand in parity/test_blis.py."""
import pytest

import simulator
from simulator.domain import records
from simulator.errors import InputErrors

# Blocks of 16,000 bytes: a write of one takes 100 + 400 us, two at a time; host memory has room for four.
EXPERIMENT = """
engine = {scheduler = "blis", upstream_compat = true, num_gpu_blocks = 11, max_model_len = 4096}
latency = {backend = "linear", base_us = 5000, per_sequence_us = 10, per_prefill_token_us = 20}
workload = {type = "trace", path = "trace.csv"}
[kv_tiers]
protocol = "blis_chain"
cpu_gib = 0.0000597
kv_bytes_per_token = 1000
secondary = [{readers = 1, writers = 1, read_gb_per_s = 0.04, write_gb_per_s = 0.04, base_us = 100}]
"""
SESSIONS = """
engine = {scheduler = "blis", upstream_compat = true, num_gpu_blocks = 90, max_model_len = 4096, max_num_seqs = 8}
latency = {backend = "linear", base_us = 5000}
[kv_tiers]
protocol = "blis_chain"
cpu_gib = 0.0006
kv_bytes_per_token = 1000
secondary = [{readers = 2, writers = 2, read_gb_per_s = 0.04, write_gb_per_s = 0.04, base_us = 200}]
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
LEVEL = {"readers": 1, "writers": 1, "read_gb_per_s": 0.04, "write_gb_per_s": 0.04, "base_us": 100}
AGAIN, OTHER = (64, 1, "a:64"), (150, 1, "")        # four blocks; all ten, nine of them full


def run(folder, text, changes=None, requests=()):
    """Run an experiment; each request is (arrival in s, prompt tokens, outputs, prompt[, s to wait])."""
    columns = ["arrived_at", "num_prefill_tokens", "num_decode_tokens", "prompt", "deadline_s"]
    rows = [columns[:max(map(len, requests), default=4)], *requests]
    (folder / "trace.csv").write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    (folder / "chain.toml").write_text(text)
    return simulator.run(folder / "chain.toml", changes or {})


def level(**changes):
    """Return the level of the experiment with other figures."""
    return {"kv_tiers.secondary": [LEVEL | changes]}


def waited_us(result, *rows):
    """Return how long requests waited until they were first scheduled."""
    return [int(result.requests["scheduled_ns"][row] - result.requests["arrival_ns"][row]) // 1000 for row in rows]


def test_a_request_waits_for_what_comes_from_below_and_once_to_know_that_it_is_there(tmp_path):
    # What the first prompt left goes for the second, in host memory too, where four of its blocks come and five find no
    # room while these are written. The third reads its blocks in one job, 100 + 64,000 / 40 us, a microsecond after it
    # was told that they are there; the fifth knows. Both compute all the same.
    requests = [(0, *AGAIN), (1, *OTHER), (2, *AGAIN), (3, *OTHER), (4, *AGAIN)]
    result = run(tmp_path, EXPERIMENT, requests=requests)
    host, disk = result.kv_tiers

    assert waited_us(result, 0, 1, 2, 3, 4) == [0, 0, 1701, 0, 1700]
    assert result.iterations["duration_ns"].tolist() == [6_290_000, 8_010_000, 6_290_000, 8_010_000, 6_290_000]
    assert (host["stored_chunks"], host["loaded_chunks"], host["evicted_chunks"], host["refusals"]) == (12, 8, 16, 10)
    assert (disk["level"], disk["used_chunks"], disk["stores"]) == (1, 12, 12)
    assert (disk["loads"], disk["loaded_chunks"]) == (2, 8)
    assert disk["loaded_bytes"] == 8 * 16_000
    assert disk["load_busy_ns"] == 2 * 1_700_000


def test_others_pass_by_and_what_is_done_is_noticed_between_iterations(tmp_path):
    # The last request runs for 5,330 us. Then the read is begun, while nothing runs.
    requests = [(0, *AGAIN), (1, *OTHER), (2, *AGAIN), (2, 16, 1, "")]
    result = run(tmp_path, EXPERIMENT, requests=requests)

    assert waited_us(result, 2, 3) == [5330 + 1700, 0]


def test_who_needs_what_another_reads_waits_for_that(tmp_path):
    requests = [(0, *AGAIN), (1, *OTHER), (2, *AGAIN), (2.001, *AGAIN)]
    result = run(tmp_path, EXPERIMENT, requests=requests)

    assert waited_us(result, 2, 3) == [1701, 701]
    assert result.kv_tiers["loads"][1] == 1


def test_what_host_memory_has_no_room_for_is_computed(tmp_path):
    # Blocks take 100 us + 0.4 s to be written, so that at 3.1 s nothing in host memory can go.
    requests = [(0, *AGAIN), (3, *OTHER), (3.1, *AGAIN)]
    result = run(tmp_path, EXPERIMENT, level(write_gb_per_s=0.00004), requests)
    host, disk = result.kv_tiers

    assert waited_us(result, 2) == [1]
    assert (disk["refusals"], disk["loads"], host["loaded_chunks"]) == (2, 0, 0)     # asked for again at its admission


def test_bandwidth_grows_with_the_copies_being_served(tmp_path):
    # Of four writers and readers. With one copy 0.25 of it, then 0.5, 0.75 and all: four writes at once, then a read.
    changes = level(full_depth=4, first_frac=0.25, readers=2, writers=2)
    result = run(tmp_path, EXPERIMENT, changes, [(0, *AGAIN), (1, *OTHER), (2, *AGAIN)])
    disk = result.kv_tiers[1]

    assert waited_us(result, 2) == [1 + 100 + 64_000 // 10]
    assert disk["store_busy_ns"] == 2 * 1000 * (400 + 1600 + 800 + 533 + 400)


def test_the_nearest_level_that_has_a_run_is_read(tmp_path):
    changes = {"kv_tiers.secondary": [LEVEL | {"write_gb_per_s": 0.00001}, LEVEL | {"base_us": 1000}]}
    requests = [(0, *AGAIN), (20, *OTHER), (40, *AGAIN)]
    near = run(tmp_path, EXPERIMENT, changes, requests)
    # Blocks of the second prompt take their places once they are written to both levels; before that, from host memory.
    assert waited_us(near, 2) == [1701]
    assert near.kv_tiers["loads"].tolist() == [4, 1, 0]
    assert near.kv_tiers["stores"].tolist() == [8, 8, 8]


def test_who_gives_up_waiting_leaves_the_read_to_others(tmp_path):
    requests = [(0, *AGAIN, 9), (1, *OTHER, 9), (2, *AGAIN, 0.001), (2.0015, *AGAIN, 9)]
    result = run(tmp_path, EXPERIMENT, requests=requests)

    assert result.requests["status"][2] == records.TIMED_OUT
    assert waited_us(result, 3) == [201]
    assert result.kv_tiers["loads"].tolist() == [4, 1]


def test_blocks_that_waiting_requests_keep_may_stop_all_others(tmp_path):
    result = run(tmp_path, SESSIONS, {"engine.num_gpu_blocks": 60})

    assert "livelock" in result.summary["diagnosis"][0]


def test_host_memory_alone_puts_nobody_off(tmp_path):
    result = run(tmp_path, EXPERIMENT, {"kv_tiers.secondary": [], "kv_tiers.cpu_gib": 0.001}, [
        (0, *AGAIN), (1, *OTHER), (2, *AGAIN)])

    assert waited_us(result, 2) == [0]
    assert result.kv_tiers["loaded_chunks"].tolist() == [4]


@pytest.mark.parametrize("changes", [
    {}, {"kv_tiers.cpu_gib": 0.0001}, {"kv_tiers.offload_prompt_only": False}, {"engine.policy": "sjf"},
    {"engine.long_prefill_token_threshold": 24},
], ids=str)
def test_runs_are_equal_with_and_without_fast_forward_and_again(tmp_path, changes):
    fast, slow, again = (run(tmp_path, SESSIONS, changes | {"engine.fast_forward": bulk})
                         for bulk in (True, False, True))

    assert (fast.requests == slow.requests).all()
    assert (fast.iterations == slow.iterations).all()
    assert (fast.kv_tiers == slow.kv_tiers).all()
    assert fast.summary == slow.summary == again.summary
    assert (fast.requests == again.requests).all()
    assert int(fast.kv_tiers["loads"][1]) > 0


@pytest.mark.parametrize(("changes", "message"), [
    ({"engine.scheduler": "vllm"}, 'with engine.scheduler = "vllm", found .*: it goes with scheduler "blis"'),
    ({"engine.upstream_compat": False}, r"engine\.upstream_compat: expected true with \[kv_tiers\], found false"),
    ({"engine.enable_prefix_caching": False}, r"engine\.enable_prefix_caching: expected true with \[kv_tiers\]"),
    ({"kv_tiers.cpu_gib": 0.00001}, r"kv_tiers\.cpu_gib: .*hold 0 blocks of 16,000 bytes"),
    (level(full_depth=-1), r"kv_tiers\.secondary\[0\]\.full_depth"),
    (level(latency_jitter_stddev=0.1), r"latency_jitter_stddev"),
    ({"kv_tiers.secondary": [{}]}, r"read_gb_per_s"),
    ({"kv_tiers.eviction_policy": "arc"}, "eviction_policy"),
])
def test_what_does_not_go_with_it_is_refused(tmp_path, changes, message):
    text = EXPERIMENT
    if "engine.scheduler" in changes:
        text = text.replace("upstream_compat = true, ", "")
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, text, changes, [(0, 64, 1, "")])


def test_without_a_model_the_bytes_of_a_token_must_be_given(tmp_path):
    with pytest.raises(InputErrors, match=r"kv_tiers\.kv_bytes_per_token: missing"):
        run(tmp_path, EXPERIMENT.replace("kv_bytes_per_token = 1000\n", ""), requests=[(0, 64, 1, "")])
