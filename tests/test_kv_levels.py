"""Levels of KV below host memory: a disk of each replica, a store that all share."""
import pytest

import simulator
from simulator.errors import InputErrors

# The host holds 600 chunks. Of two prompts of 256 blocks and two of 259 that come before, the last two are there whole
# at 10 s, and of the second one 82 blocks: the rest is on disk alone. The accelerator has nothing of the first two.
EXPERIMENT = """
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {num_gpu_blocks = 520, max_model_len = 8192, async_scheduling = false}
latency = {backend = "linear", base_us = 5000, per_sequence_us = 10, per_prefill_token_us = 20}
workload = {type = "trace", path = "trace.csv"}
[kv_tiers]
cpu_gib = 1.171875
d2h_gb_per_s = 50.0
h2d_gb_per_s = 50.0
[[kv_tiers.secondary]]
name = "nvme"
"""
STORED = [(0, 4096, 1, "a:4096"), (1, 4096, 1, "b:4096"), (2, 4144, 1, ""), (3, 4144, 1, "")]
READ_MS = 0.1 + 536_870_912 / 7e9 * 1e3         # 256 blocks from disk, 76.796 ms
LOAD_MS = 536_870_912 / 50e9 * 1e3              # 10.737 ms
LAST_MS = 5.03                                  # an iteration of one token
SYNTHETIC = """
engine = {num_gpu_blocks = 700, max_model_len = 4096, max_num_seqs = 32}
latency = {backend = "linear"}
topology = {replicas = 3}
[kv_tiers]
cpu_gib = 0.004
kv_bytes_per_token = 1000.0
d2h_gb_per_s = 0.1
h2d_gb_per_s = 0.1
[[kv_tiers.secondary]]
name = "disk"
capacity_gib = 0.02
read_gb_per_s = 0.05
write_gb_per_s = 0.02
[workload]
type = "sessions"
num_sessions = 40
arrival = {process = "poisson", rate_per_s = 8.0}
[workload.sessions]
rounds = {distribution = "uniform", min = 2, max = 5}
first_tokens = {distribution = "uniform", min = 100, max = 900}
new_tokens = {distribution = "uniform", min = 20, max = 200}
output_tokens = {distribution = "uniform", min = 5, max = 90}
think_time_s = {distribution = "exponential", mean = 1.0}
"""
NEAR = {"scope": "replica", "capacity_gib": 0.006, "read_gb_per_s": 0.1, "write_gb_per_s": 0.1, "base_us": 50.0}
FAR = {"name": "store", "scope": "cluster", "capacity_gib": 0.03, "read_gb_per_s": 0.1, "write_gb_per_s": 0.05}
SHARED = {"kv_tiers.secondary": [FAR]}


def run(folder, requests=(), overrides=None, text=EXPERIMENT):
    """Run an experiment; each request is (arrival in s, prompt tokens, outputs, prompt)."""
    (folder / "trace.csv").write_text("\n".join([
        "arrived_at,num_prefill_tokens,num_decode_tokens,prompt",
        *(",".join(map(str, request)) for request in requests)]) + "\n")
    (folder / "levels.toml").write_text(text)
    return simulator.run(folder / "levels.toml", overrides or {})


def ttft_ms(result):
    requests = result.requests
    return ((requests["first_token_ns"] - requests["arrival_ns"]) / 1e6).tolist()


def test_what_only_the_disk_has_comes_by_way_of_the_host(tmp_path):
    result = run(tmp_path, [*STORED, (10, 4096, 1, "a:4096")])
    host, disk = result.kv_tiers

    assert ttft_ms(result)[-1] == pytest.approx(READ_MS + LOAD_MS + LAST_MS, abs=2e-5)
    assert (disk["level"], disk["loads"], disk["hit_chunks"], disk["loaded_chunks"]) == (1, 1, 256, 256)
    assert (disk["stores"], disk["stored_chunks"], disk["evicted_chunks"]) == (4, 1030, 0)
    assert disk["loaded_bytes"] == host["loaded_bytes"] == 536_870_912
    assert disk["load_busy_ns"] == pytest.approx((READ_MS - 0.1) * 1e6, abs=1)
    assert host["evicted_chunks"] == 1030 + 256 - 600


def test_reads_share_the_link_of_the_disk(tmp_path):
    # Both are read at half the rate until the 255 other blocks of the second one have come, which are loaded then;
    # those of the first one come, and are loaded, after them.
    result = run(tmp_path, [*STORED, (10, 4096, 1, "a:4096"), (10, 4096, 1, "b:4096")])
    second_ms = 0.1 + 2 * 255 / 256 * (READ_MS - 0.1) + 255 / 256 * LOAD_MS

    assert ttft_ms(result)[-2:] == pytest.approx([second_ms + LOAD_MS + LAST_MS, second_ms + LAST_MS], abs=2e-5)


def test_a_request_that_waits_for_the_disk_holds_up_nobody_behind_it(tmp_path):
    result = run(tmp_path, [*STORED, (10, 4096, 1, "a:4096"), (10, 64, 1, "")])

    assert ttft_ms(result)[-1] == 5.0 + 0.01 + 64 * 0.02


def test_a_replica_finds_what_another_one_stored(tmp_path):
    requests = [(0, 4096, 1, "a:4096"), (10, 4096, 1, "a:4096")]
    shared = {"kv_tiers.secondary": [{"name": "pool", "scope": "cluster"}], "topology.replicas": 2}
    apart = shared | {"kv_tiers.secondary": [{"name": "nvme"}]}

    found, alone = (run(tmp_path, requests, changes) for changes in (shared, apart))
    assert found.requests["replica"].tolist() == [0, 1]
    assert found.requests["loaded_tokens"].tolist() == [0, 4096]
    assert ttft_ms(found)[1] == pytest.approx(READ_MS + LOAD_MS + LAST_MS, abs=2e-5)
    assert alone.requests["loaded_tokens"].tolist() == [0, 0]
    assert found.kv_tiers[["replica", "level", "loads"]].tolist() == [(0, 0, 0), (1, 0, 1), (-1, 1, 1)]


def test_replicas_contend_for_the_link_of_a_shared_store(tmp_path):
    requests = [(0, 4096, 1, "a:4096"), *((10, 4096, 1, "a:4096") for _ in range(3))]
    changes = {"kv_tiers.secondary": [{"name": "pool", "scope": "cluster"}], "topology.replicas": 4}
    result = run(tmp_path, requests, changes)

    # three read 256 blocks each, at a third of the rate
    assert ttft_ms(result)[1:] == pytest.approx([0.1 + 3 * (READ_MS - 0.1) + LOAD_MS + LAST_MS] * 3, abs=2e-5)


def test_links_are_shared_after_hours_as_they_are_at_first(tmp_path):
    # a nanosecond of 20,000 s is little beside the rounding of their sums
    early, late = (run(tmp_path, [(first_s + 0.0123 * i, 1600, 1, f"p{i}:1600") for i in range(40)],
                       {"kv_tiers.contention": "fair", "kv_tiers.cpu_gib": 8.0}) for first_s in (0, 20_000))

    assert ttft_ms(early) == pytest.approx(ttft_ms(late), abs=2e-5)
    assert (early.kv_tiers == late.kv_tiers).all()
    assert early.kv_tiers["stores"].min() > 20


def test_a_write_without_room_is_dropped_and_counted(tmp_path):
    # 200 chunks fit, every prompt has more; of two prompts of 100 and one of 150 the third takes the place of others
    result = run(tmp_path, STORED, {"kv_tiers.secondary": [{"name": "small", "capacity_gib": 200 / 512}]})
    some = run(tmp_path, [(0, 1600, 1, "a:1600"), (1, 1600, 1, "b:1600"), (2, 2400, 1, "c:2400")],
               {"kv_tiers.secondary": [{"name": "small", "capacity_gib": 200 / 512}]})

    assert result.kv_tiers[1][["stores", "refusals", "used_chunks"]].tolist() == (0, 4, 0)
    assert some.kv_tiers[1][["stores", "refusals", "used_chunks", "evicted_chunks"]].tolist() == (3, 0, 200, 150)


def test_the_nearest_level_that_has_it_is_read(tmp_path):
    levels = [{"name": "near", "read_gb_per_s": 10.0}, {"name": "far", "read_gb_per_s": 1.0}]
    result = run(tmp_path, [*STORED, (10, 4096, 1, "a:4096")], {"kv_tiers.secondary": levels})

    assert result.kv_tiers["loads"].tolist() == [1, 1, 0]
    assert result.kv_tiers["stores"].tolist() == [4, 4, 4]
    assert [level["level"] for level in result.summary["kv_tiers"]] == [0, 1, 2]


WAYS = [
    {}, SHARED, {"kv_tiers.secondary": [NEAR | {"name": "near"}, FAR]}, SHARED | {"engine.async_scheduling": False},
    SHARED | {"kv_tiers.eviction_policy": "arc"}, {"kv_tiers.blocks_per_chunk": 4},
    SHARED | {"kv_tiers.offload_prompt_only": False}, {"kv_tiers.contention": "fair"},
    SHARED | {"kv_tiers.store_threshold": 2}, SHARED | {"cluster.routing.policy": "least_loaded"},
    SHARED | {"engine.num_gpu_blocks": 150, "engine.max_model_len": 2048}, SHARED | {"kv_tiers.cpu_gib": 0.0005},
    SHARED | {"failures": [{"kind": "stop", "which": 1, "at_s": at_s, "duration_s": 0.3} for at_s in (1.0, 2.5, 4.0)]}]


@pytest.mark.parametrize("changes", WAYS, ids=str)
def test_runs_of_iterations_at_once_and_one_by_one_are_equal(tmp_path, changes):
    fast, slow = (run(tmp_path, (), changes | {"engine.fast_forward": bulk}, SYNTHETIC) for bulk in (True, False))

    assert (fast.requests == slow.requests).all()
    assert (fast.iterations == slow.iterations).all()
    assert (fast.kv_tiers == slow.kv_tiers).all()
    assert fast.summary == slow.summary
    assert fast.kv_tiers["hit_chunks"][-1] > 0


@pytest.mark.parametrize("changes", WAYS, ids=str)
def test_copies_and_bytes_are_conserved(tmp_path, changes):
    tiers = run(tmp_path, (), changes, SYNTHETIC).kv_tiers
    chunk_bytes = 16_000.0 * changes.get("kv_tiers.blocks_per_chunk", 1)
    lower = tiers[tiers["level"] > 0]

    assert (tiers["started"] == tiers["stores"] + tiers["loads"] + tiers["cancelled"] + tiers["underway"]).all()
    assert (tiers["used_chunks"] <= tiers["capacity_chunks"]).all()
    assert (lower["stored_chunks"] - lower["evicted_chunks"] <= lower["used_chunks"]).all()
    assert (lower["stored_bytes"] == lower["stored_chunks"] * chunk_bytes).all()
    assert (lower["loaded_bytes"] == lower["loaded_chunks"] * chunk_bytes).all()
    assert (lower["loaded_chunks"] <= lower["hit_chunks"]).all()


@pytest.mark.parametrize(("changes", "message"), [
    ({"kv_tiers.secondary": [{"name": "a"}, {"name": "a"}]}, r'secondary\[1\]\.name: two levels are named "a"'),
    ({"kv_tiers.secondary": [{"name": "a", "capacity_gib": 0.001}]}, r"\[0\]\.capacity_gib: it holds no chunk of"),
    ({"kv_tiers.secondary": [{"name": "a", "scope": "rack"}]}, r"scope"),
    ({"kv_tiers.secondary": [{"name": "a", "scope": "cluster"}],
      "pools": [{"name": "one"}, {"name": "two", "engine": {"block_size": 32}}]},
     r'engine\.block_size: expected 16, as in pool "one", found 32: both share the store "a"'),
])
def test_what_cannot_be_had_is_refused_with_the_reason(tmp_path, changes, message):
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, [(0, 64, 1, "")], changes)
