"""Systems that keep KV beyond the blocks, as parameters of one mechanism."""
import pytest

from simulator.errors import InputErrors
from test_kv_levels import FAR, NEAR, SYNTHETIC, run, ttft_ms

EXPERIMENT = """
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {num_gpu_blocks = 519, max_model_len = 8192, async_scheduling = false}
latency = {backend = "linear", base_us = 5000, per_sequence_us = 10, per_prefill_token_us = 20}
workload = {type = "trace", path = "trace.csv"}
[kv_tiers]
d2h_gb_per_s = 50.0
h2d_gb_per_s = 50.0
"""
# Two prompts that share nothing take all 518 blocks after the first one, which then comes again.
AGAIN = [(0, 4096, 1, "a:4096"), (2, 4144, 1, ""), (3, 4144, 1, ""), (10, 4096, 1, "a:4096")]
BLOCK_MS = 2_097_152 / 50e9 * 1e3
KINDS = {
    "vllm_simple": {"cpu_gib": 8.0}, "lmcache": {}, "hicache": {"ratio": 3.0}, "kvbm": {"g2_gib": 8.0},
    "mooncake_store": {"pool_gib": 64.0, "buffer_gib": 8.0}}


def at(protocol, **keys):
    return {f"kv_tiers.{key}": value for key, value in ({"protocol": protocol} | KINDS[protocol] | keys).items()}


@pytest.mark.parametrize(("protocol", "expected_ms"), [
    ("vllm_simple", 256 * BLOCK_MS + 5.03),             # the request waits, the engine does not
    ("kvbm", 256 * BLOCK_MS + 5.03),
    ("mooncake_store", 256 * BLOCK_MS + 5.03),
    ("lmcache", 256 * BLOCK_MS + 5.03),                 # the iteration of its last token takes that much longer
    # 32 layers: that of the first one, and of the others what the 5.03 ms do not hide
    ("hicache", 5.03 + 256 * BLOCK_MS / 32 + (256 * BLOCK_MS - 5.03) * 31 / 32),
])
def test_what_the_host_has_is_loaded(tmp_path, protocol, expected_ms):
    result = run(tmp_path, AGAIN, at(protocol), EXPERIMENT)

    assert ttft_ms(result)[-1] == pytest.approx(expected_ms, abs=2e-5)
    assert result.requests["loaded_tokens"][-1] in (4095, 4096)


def test_lmcache_loads_within_the_iteration_and_holds_up_the_others_in_it(tmp_path):
    requests = [*AGAIN[:-1], (10, 4096, 1, "a:4096"), (10, 16, 1, "")]
    waits, loads = (run(tmp_path, requests, at("lmcache", async_loading=flag), EXPERIMENT) for flag in (True, False))

    assert ttft_ms(waits)[-1] == 5.0 + 0.01 + 16 * 0.02
    assert ttft_ms(loads)[-2:] == pytest.approx([256 * BLOCK_MS + 5.0 + 0.02 + 17 * 0.02] * 2, abs=2e-5)


def test_lmcache_keeps_whole_chunks_of_256_tokens(tmp_path):
    result = run(tmp_path, [(0, 1000, 1, "a:1000")], at("lmcache"), EXPERIMENT)

    assert result.kv_tiers[0][["stored_chunks", "stored_bytes"]].tolist() == (3, 48 * 2_097_152)
    assert result.kv_tiers["capacity_chunks"].tolist() == [5 * 512 // 16]


def test_vllm_simple_stores_a_step_later(tmp_path):
    # Chunks of 2,048 tokens are computed from 0, 45.97 and 91.94 ms on. At 50 ms two copies were asked for, or one.
    changes = {"engine.max_num_batched_tokens": 2048, "kv_tiers.cpu_gib": 8.0}
    requests = [(0, 6144, 1, "a:6144")]
    offload, simple = ([run(tmp_path, requests, changes | protocol | {"horizon_s": until_s}, EXPERIMENT).kv_tiers[0]
                        for until_s in (0.05, 1.0)] for protocol in ({}, at("vllm_simple")))

    assert [tiers["started"] for tiers in offload] == [2, 3]
    assert [tiers["started"] for tiers in simple] == [1, 3]
    assert offload[1]["stored_chunks"] == simple[1]["stored_chunks"] == 384


def test_hicache_stores_what_comes_a_second_time(tmp_path):
    twice = [(0, 640, 1, "a:640"), (2, 640, 1, "a:640")]
    through, selective = (run(tmp_path, twice, at("hicache", write_policy=policy), EXPERIMENT)
                          for policy in ("write_through", "write_through_selective"))

    assert through.kv_tiers["capacity_chunks"].tolist() == [3 * 519 // 4]
    assert (through.kv_tiers["stored_chunks"][0], selective.kv_tiers["stored_chunks"][0]) == (10, 10)
    once = run(tmp_path, twice[:1], at("hicache", write_policy="write_through_selective"), EXPERIMENT)
    assert once.kv_tiers["stored_chunks"].tolist() == [0]


def test_mooncake_lets_a_twentieth_go_when_nine_tenths_are_full(tmp_path):
    # 1,024 objects fit: of 18 prompts of 50 the 19th goes over 921, and 51 go for it
    requests = [(float(i), 800, 1, f"p{i}:800") for i in range(19)]
    store = run(tmp_path, requests, at("mooncake_store", pool_gib=2.0), EXPERIMENT).kv_tiers[1]

    assert store[["level", "replica", "capacity_chunks", "evicted_chunks", "used_chunks"]].tolist() == (
        1, -1, 1024, 51, 899)


def test_mooncake_keeps_what_was_read_for_the_time_of_its_lease(tmp_path):
    # "a" is read from the pool by the second replica, and kept: the prompts that follow need its place in vain
    requests = [(0.0, 1600, 1, "a:1600"), (1.0, 1600, 1, "a:1600"), (2.0, 1600, 1, "b:1600"), (3.0, 1600, 1, "c:1600")]
    changes = {"topology.replicas": 2, "kv_tiers.eviction_high_watermark": 1.0}
    pools = [run(tmp_path, requests, at("mooncake_store", pool_gib=150 / 512, lease_s=lease_s) | changes,
                 EXPERIMENT).kv_tiers[-1] for lease_s in (0.0, 10.0)]

    assert [pool["loads"] for pool in pools] == [1, 1]
    assert [pool["refusals"] for pool in pools] == [0, 2]
    assert [pool["evicted_chunks"] for pool in pools] == [150, 0]


def test_kvbm_writes_to_disk_one_batch_after_the_other(tmp_path):
    tiers = run(tmp_path, AGAIN, at("kvbm", g3_gib=64.0) | {"topology.replicas": 2}, EXPERIMENT).kv_tiers

    assert tiers["replica"].tolist() == [0, 1, -1]
    assert tiers["store_busy_ns"][-1] == pytest.approx((256 + 259 + 259) * 2_097_152 / 7.0, abs=1)


WAYS = [
    {"protocol": "vllm_simple", "cpu_gib": 0.02}, {"protocol": "lmcache", "cpu_gib": 0.02, "chunk_tokens": 32},
    {"protocol": "lmcache", "cpu_gib": 0.004, "chunk_tokens": 16, "secondary": [NEAR | {"name": "near"}, FAR]},
    {"protocol": "hicache", "ratio": 2.0, "page_tokens": 32},
    {"protocol": "hicache", "ratio": 0.3, "page_tokens": 16, "prefetch_threshold": 64, "secondary": [FAR]},
    {"protocol": "kvbm", "g2_gib": 0.004, "g3_gib": 0.1}, {"protocol": "kvbm", "g2_gib": 0.02},
    {"protocol": "mooncake_store", "buffer_gib": 0.002, "pool_gib": 0.02, "ssd_gib": 0.1, "lease_s": 0.5}]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("keys", WAYS, ids=lambda keys: keys["protocol"])
def test_runs_of_iterations_at_once_and_one_by_one_are_equal(tmp_path, keys, is_async):
    begin, end = SYNTHETIC.index("cpu_gib"), SYNTHETIC.index("[workload]")
    text = SYNTHETIC[:begin] + SYNTHETIC[begin:end].split("[[")[0].split("\n", 1)[1] + SYNTHETIC[end:]
    changes = {f"kv_tiers.{key}": value for key, value in keys.items()} | {"engine.async_scheduling": is_async}
    fast, slow = (run(tmp_path, (), changes | {"engine.fast_forward": bulk}, text) for bulk in (True, False))

    assert (fast.requests == slow.requests).all()
    assert (fast.iterations == slow.iterations).all()
    assert (fast.kv_tiers == slow.kv_tiers).all()
    assert fast.kv_tiers["hit_chunks"].sum() > 0
    assert (fast.requests["status"] == 3).all()


@pytest.mark.parametrize(("protocol", "keys", "message"), [
    ("vllm_simple", {"lazy_offload": True}, r"kv_tiers\.lazy_offload: expected false: storing by a cursor"),
    ("lmcache", {"chunk_tokens": 100}, r"kv_tiers\.chunk_tokens: expected a multiple of engine\.block_size = 16"),
    ("hicache", {"write_policy": "write_back"}, r"kv_tiers\.write_policy: write_back is not built"),
    ("hicache", {"prefetch_policy": "best_effort"}, r"kv_tiers\.prefetch_policy: best_effort: a prefetch would have"),
    ("hicache", {"ratio": 0.001}, r"kv_tiers\.ratio: 0\.001 times the blocks hold 0 chunks"),
    ("kvbm", {"g3_gib": 0.0001}, r"kv_tiers\.g3_gib: it holds no chunk of 2,097,152 bytes"),
])
def test_what_is_not_built_is_refused_with_the_reason(tmp_path, protocol, keys, message):
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, [(0, 64, 1, "")], at(protocol, **keys), EXPERIMENT)


def test_pools_that_share_a_store_keep_the_same_kv(tmp_path):
    pools = [{"name": "one"}, {"name": "two", "engine": {"block_size": 32}}]
    with pytest.raises(InputErrors, match=r'engine\.block_size: expected 16, as in pool "one", found 32: both share'):
        run(tmp_path, [(0, 64, 1, "")], at("mooncake_store") | {"pools": pools}, EXPERIMENT)


def test_replicas_of_two_pools_share_one_store(tmp_path):
    result = run(tmp_path, [AGAIN[0], AGAIN[-1]], at("mooncake_store") | {"pools": [{"name": "one"}, {"name": "two"}]},
                 EXPERIMENT)

    assert result.kv_tiers["replica"].tolist() == [0, 1, -1]
    assert result.requests["loaded_tokens"].tolist() == [0, 4096]
