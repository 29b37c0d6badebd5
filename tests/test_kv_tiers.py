"""Experiments with KV tiers, from file to results; the worked examples stand on the page of KV tiers, section 2.5."""
import numpy as np
import pytest

import simulator
from simulator.assembly import assemble
from simulator.config.load import load_experiment
from simulator.errors import InputErrors
from simulator.results.memory import NO_SINK

EXPERIMENT = """
model = {name = "llama-3.1-8b"}
hardware = {name = "h100-sxm-80gb"}
engine = {num_gpu_blocks = 520, max_model_len = 8192, async_scheduling = false}
latency = {backend = "linear", base_us = 5000, per_sequence_us = 10, per_prefill_token_us = 20}
workload = {type = "trace", path = "trace.csv"}
kv_tiers = {cpu_gib = 64.0, d2h_gb_per_s = 50.0, h2d_gb_per_s = 50.0}
"""
# Two prompts of 256 blocks each are stored; two others of which nothing is shared then take all 519 blocks, so that the
# KV cache holds nothing of the first two.
STORED = [(0, 4096, 1, "a:4096"), (1, 4096, 1, "b:4096"), (2, 4144, 1, ""), (3, 4144, 1, "")]
THREE_CHUNKS = [(0, 48, 1, "a:48"), (1, 16, 1, "d:16"), (2, 4144, 1, ""), (3, 4144, 1, ""), (10, 48, 1, "a:48")]
SYNTHETIC = """
engine = {num_gpu_blocks = 700, max_model_len = 4096, max_num_seqs = 32}
latency = {backend = "linear"}
kv_tiers = {cpu_gib = 0.02, kv_bytes_per_token = 1000.0, d2h_gb_per_s = 0.1, h2d_gb_per_s = 0.1}
topology = {replicas = 3}
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


def run(folder, requests, overrides=None, text=EXPERIMENT):
    """Run an experiment; each request is (arrival in s, prompt tokens, outputs, prompt)."""
    (folder / "trace.csv").write_text("\n".join([
        "arrived_at,num_prefill_tokens,num_decode_tokens,prompt",
        *(",".join(map(str, request)) for request in requests)]) + "\n")
    (folder / "tiers.toml").write_text(text)
    return simulator.run(folder / "tiers.toml", overrides or {})


def tier_after(folder, requests):
    """Return the tier of a replica whose host holds three chunks, under ARC."""
    run(folder, requests)
    experiment = load_experiment(folder / "tiers.toml", {
        "kv_tiers.cpu_gib": 3 / 512, "kv_tiers.eviction_policy": "arc", "engine.num_gpu_blocks": 519})
    cluster = assemble.build(assemble.prepare(experiment), NO_SINK)
    cluster.run()
    return cluster.replicas[0].scheduler.tier


def ttft_ms(result):
    requests = result.requests
    return ((requests["first_token_ns"] - requests["arrival_ns"]) / 1e6).tolist()


def test_s1_a_block_of_llama_8b_is_2_mib(tmp_path):
    tiers = run(tmp_path, [(0, 4096, 1, "")]).kv_tiers

    assert tiers["capacity_chunks"].tolist() == [32_768]
    assert tiers["stored_bytes"].tolist() == [256 * 2_097_152]


def test_s2_a_prompt_that_the_host_has_is_loaded_and_its_last_token_computed(tmp_path):
    # 536,870,912 bytes at 50 GB/s are 10.737418 ms, then an iteration of one token, 5.03; to compute takes 86.93.
    result = run(tmp_path, [*STORED, (10, 4096, 1, "a:4096")])

    assert ttft_ms(result)[0] == 86.93
    assert ttft_ms(result)[-1] == pytest.approx(10.737418 + 5.03, abs=2e-6)
    assert result.requests["loaded_tokens"].tolist() == [0, 0, 0, 0, 4096]


def test_s3_loads_go_one_after_the_other(tmp_path):
    # at 10 s, ends of loads: 10.737 and 21.475 ms, and not both 21.475
    result = run(tmp_path, [*STORED, (10, 4096, 1, "a:4096"), (10, 4096, 1, "b:4096")])

    assert ttft_ms(result)[-2:] == pytest.approx([10.737418 + 5.03, 21.474836 + 5.03], abs=2e-6)


def test_loads_that_share_the_link_end_together(tmp_path):
    result = run(tmp_path, [*STORED, (10, 4096, 1, "a:4096"), (10, 4096, 1, "b:4096")],
                 {"kv_tiers.contention": "fair"})

    assert ttft_ms(result)[-2:] == pytest.approx([21.474836 + 5.06] * 2, abs=2e-6)     # in one iteration of two


def test_a_load_within_the_budget_of_a_step_delays_that_step(tmp_path):
    # 536,870,912 bytes: with a byte less the request waits while another one decodes, as without a budget; else it is
    # admitted at once, and both wait 10.737418 ms for the load.
    requests = [*STORED, (10, 16, 10, ""), (10.02, 4112, 1, "a:4096/z:16")]
    without, beyond, within = (run(tmp_path, requests, {"kv_tiers.sync_load_budget_bytes": budget}).requests[-2:]
                               for budget in (0, 536_870_911, 536_870_912))

    assert (without == beyond).all()
    assert within["completed_ns"][0] - without["completed_ns"][0] == 10_737_418
    assert within["completed_ns"][1] < without["completed_ns"][1]
    assert within["loaded_tokens"].tolist() == without["loaded_tokens"].tolist() == [0, 4096]


@pytest.mark.parametrize(("contention", "load_ns"), [("fifo", 5_368_709), ("fair", 10_737_419)])
def test_loads_of_steps_do_not_queue_behind_others(tmp_path, contention, load_ns):
    # b is beyond the budget and loads from 0 to 10.74 ms. The load of a begins at 5 ms on a stream of its own and takes
    # 5.37 ms, or twice as long if both share the link; a step of 5.33 ms follows, and then b's of 5.03.
    requests = [*STORED, (10, 4096, 1, "b:4096"), (10.005, 2064, 1, "a:2048/z:16")]
    ends = run(tmp_path, requests, {"kv_tiers.sync_load_budget_bytes": 300_000_000,
                                    "kv_tiers.contention": contention}).requests["completed_ns"][-2:] - 10 ** 10

    assert ends.tolist() == [5_000_000 + load_ns + 5_330_000 + 5_030_000, 5_000_000 + load_ns + 5_330_000]


def test_versions_without_a_budget_of_steps_refuse_it(tmp_path):
    with pytest.raises(InputErrors, match=r"kv_tiers\.sync_load_budget_bytes: expected 0, found 1: vLLM 0\.32 has no"):
        run(tmp_path, [(0, 64, 1, "")], {"kv_tiers.sync_load_budget_bytes": 1, "engine.vllm_version": "0.32"})


def test_s4_the_tail_of_a_prompt_goes_first(tmp_path):
    # Three chunks fit. The second request takes the place of the last chunk of the first one; prompts that are larger
    # than the host clear the accelerator. Of 48 tokens 32 are there.
    result = run(tmp_path, THREE_CHUNKS, {"kv_tiers.cpu_gib": 3 / 512, "engine.num_gpu_blocks": 519})

    assert result.requests["loaded_tokens"].tolist() == [0, 0, 0, 0, 32]
    assert result.kv_tiers["refusals"].tolist() == [4]      # when they are computed, and when they leave


def test_s5_an_offer_of_what_arc_remembers_raises_its_target(tmp_path):
    # The same; the third offers the chunk that went from T1 to B1.
    tier = tier_after(tmp_path, THREE_CHUNKS[:-1])
    assert (tier.policy.order()["target"], tier.table.entries(2)[0][3]) == (0.0, [2])
    tier = tier_after(tmp_path, THREE_CHUNKS)
    assert tier.policy.order()["target"] == 1.0


def test_s6_a_store_is_found_when_it_is_done_and_holds_up_one_request_alone(tmp_path):
    # Computed by 86.93 ms, copied from then to 97.67 ms. Who wants it waits until then, and 10.74 ms for its load.
    requests = [(0, 4096, 6, "a:4096"), (0.05, 4096, 1, "a:4096"), (0.06, 16, 1, "")]
    result = run(tmp_path, requests, {"engine.enable_prefix_caching": False, "engine.num_gpu_blocks": 2000})
    first_token_ms = (result.requests["first_token_ns"] / 1e6).tolist()

    assert result.requests["loaded_tokens"].tolist() == [0, 4096, 0]
    assert first_token_ms[2] == pytest.approx(86.93 + 5.0 + 0.02 + 16 * 0.02, abs=1)
    assert 97.667 + 10.737 < first_token_ms[1] < 130


def test_s7_a_block_of_2_mb_holds_up_an_iteration_by_42_us(tmp_path):
    # Three blocks, r0 and r1 have one each, full. At 5.66 ms r0 takes the third, and r1 is preempted for want of one:
    # its store begins at once, behind that of r0, and the iteration waits for it.
    result = run(tmp_path, [(0, 16, 3, ""), (0, 16, 3, "")], {"engine.num_gpu_blocks": 4, "engine.max_model_len": 48})

    assert result.requests["preemptions"].tolist() == [0, 1]
    assert result.kv_tiers["waited_ns"].tolist() == [2 * 41_943]
    assert result.iterations["start_ns"][1] == 5_660_000
    assert result.iterations["duration_ns"][1] == 2 * 41_943 + 5_010_850        # 17 tokens in KV: 0.85 us


def test_tensor_parallel_ranks_copy_side_by_side(tmp_path):
    results = [run(tmp_path, [*STORED, (10, 4096, 1, "a:4096")], {"topology.tensor_parallel": ranks})
               for ranks in (1, 2)]

    assert ttft_ms(results[1])[-1] == pytest.approx(10.737418 / 2 + 5.03, abs=2e-6)
    assert results[0].kv_tiers["capacity_chunks"] == results[1].kv_tiers["capacity_chunks"]


def test_the_latent_of_mla_is_kept_once(tmp_path):
    changes = {"model.name": "deepseek-v3", "engine.max_model_len": 8192, "topology.node": "dgx-h100"}
    chunks = [run(tmp_path, [(0, 64, 1, "")], changes | {"topology.tensor_parallel": ranks}).kv_tiers["capacity_chunks"]
              for ranks in (1, 8)]

    assert chunks[0] == chunks[1]


def test_what_the_tier_did_is_in_the_summary(tmp_path):
    result = run(tmp_path, [*STORED, (10, 4096, 1, "a:4096")], {"topology.replicas": 1})
    level, = result.summary["kv_tiers"]

    assert (level["stores"], level["stored_chunks"], level["loads"], level["loaded_chunks"]) == (4, 1030, 1, 256)
    assert (level["used_chunks"], level["evicted_chunks"], level["cancelled"]) == (1030, 0, 0)
    assert level["loaded_bytes"] == 536_870_912


def test_without_tiers_there_is_no_word_of_them(tmp_path):
    result = run(tmp_path, [(0, 64, 1, "")], text=EXPERIMENT.replace("kv_tiers", "#"))

    assert "kv_tiers" not in result.summary
    assert "loaded_tokens" not in result.requests.dtype.names
    with pytest.raises(LookupError, match=r"there is no \[kv_tiers\]"):
        _ = result.kv_tiers


@pytest.mark.parametrize(("drafts", "version", "loaded"), [
    ({"num_tokens": 2, "acceptance": [1]}, "0.33", 4096), ({"num_tokens": 2, "acceptance": [1]}, "0.32", 4096),
    ({"method": "eagle", "num_tokens": 2, "drafter_share": 0.0}, "0.33", 4080),
    ({"method": "eagle", "num_tokens": 2, "drafter_share": 0.0, "disable_eagle_block_drop": True}, "0.33", 4096),
    ({"method": "eagle", "num_tokens": 2, "drafter_share": 0.0}, "0.32", 4096)])
def test_drafts_go_with_offloading(drafts, version, loaded, tmp_path):
    result = run(tmp_path, [*STORED, (10, 4096, 9, "a:4096")], {"engine.speculative": drafts,
                                                                "engine.vllm_version": version})

    assert result.requests["loaded_tokens"].tolist()[-1] == loaded
    assert result.requests["output_tokens"].tolist()[-1] == 9


@pytest.mark.parametrize(("changes", "message"), [
    ({"kv_tiers.cpu_gib": 0.001}, r"kv_tiers\.cpu_gib: 0\.001 GiB hold 0 chunks of 2,097,152 bytes"),
    ({"engine.scheduler": "blis"},
     r'kv_tiers\.protocol: .* "blis", found "vllm_offload": it goes with scheduler "vllm"'),
    ({"engine.vllm_version": "0.10"}, r'engine\.vllm_version: expected "0\.32" or "0\.33" with \[kv_tiers\]'),
    ({"topology.pipeline_parallel": 2}, r"topology\.pipeline_parallel: expected 1 with \[kv_tiers\], found 2"),
    ({"engine.speculative": {"num_tokens": 2, "acceptance": [1]}, "kv_tiers.protocol": "lmcache"},
     r"engine\.speculative: expected none with \[kv_tiers\]"),
    ({"cluster.rescheduling.policy": "rebalance"}, r"cluster\.rescheduling: expected none with \[kv_tiers\]"),
    ({"kv_tiers.eviction_policy": "lfu"}, r'no eviction policy of KV tiers "lfu"; did you mean lru'),
])
def test_what_cannot_be_had_is_refused_with_the_reason(tmp_path, changes, message):
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, [(0, 64, 1, "")], changes)


def test_a_link_of_which_nothing_is_known_must_be_given(tmp_path):
    text = EXPERIMENT.replace(", d2h_gb_per_s = 50.0, h2d_gb_per_s = 50.0", "").replace("h100-sxm-80gb", "tpu-v5p")
    with pytest.raises(InputErrors, match=r"kv_tiers\.d2h_gb_per_s: missing; expected a number, or hardware whose"):
        run(tmp_path, [(0, 64, 1, "")], text=text)


def test_without_a_model_the_bytes_of_a_token_must_be_given(tmp_path):
    text = "\n".join(line for line in EXPERIMENT.splitlines() if not line.startswith(("model", "hardware")))
    with pytest.raises(InputErrors, match=r"kv_tiers\.kv_bytes_per_token: missing; expected a number, or \[model\]"):
        run(tmp_path, [(0, 64, 1, "")], text=text)
    given = {"kv_tiers.kv_bytes_per_token": 131_072.0}

    assert run(tmp_path, [(0, 64, 1, "")], given, text).kv_tiers["capacity_chunks"].tolist() == [32_768]


@pytest.mark.parametrize("changes", [
    {}, {"engine.async_scheduling": False}, {"kv_tiers.eviction_policy": "arc"}, {"kv_tiers.blocks_per_chunk": 4},
    {"kv_tiers.offload_prompt_only": False}, {"kv_tiers.contention": "fair"}, {"kv_tiers.store_threshold": 2},
    {"kv_tiers.cpu_gib": 0.002}, {"kv_tiers.sync_load_budget_bytes": 200_000},
    {"engine.enable_prefix_caching": False}], ids=str)
def test_runs_of_iterations_at_once_and_one_by_one_are_equal(tmp_path, changes):
    fast, slow = (run(tmp_path, [], changes | {"engine.fast_forward": bulk}, SYNTHETIC) for bulk in (True, False))

    assert (fast.requests == slow.requests).all()
    assert (fast.iterations == slow.iterations).all()
    assert (fast.kv_tiers == slow.kv_tiers).all()
    assert fast.summary == slow.summary
    assert int(fast.kv_tiers["stored_chunks"].sum()) > 0


def test_threads_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("simulator.engine.lanes.LEAST_REQUESTS", 10)
    requests = [(0.02 * i, 200 + 7 * (i % 40), 5, f"p{i % 9}:{200 + 7 * (i % 40)}") for i in range(300)]
    (tmp_path / "trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens,prompt", *(
        ",".join(map(str, request)) for request in requests)]) + "\n")
    (tmp_path / "tiers.toml").write_text(EXPERIMENT)
    changes = {"topology.replicas": 4, "engine.num_gpu_blocks": 60, "engine.max_model_len": 900}
    one, four = (simulator.run(tmp_path / "tiers.toml", changes, threads=threads) for threads in (1, 4))

    assert (one.requests == four.requests).all()
    assert (one.kv_tiers == four.kv_tiers).all()
    assert one.kv_tiers["hit_chunks"].sum() > 0


def test_copies_that_began_were_done_or_came_to_nothing(tmp_path):
    failures = [{"kind": "stop", "which": 0, "at_s": 1.0, "duration_s": 0.5},
                {"kind": "stop", "which": 1, "at_s": 2.0, "duration_s": 0.5}]
    result = run(tmp_path, [], {"failures": failures, "kv_tiers.d2h_gb_per_s": 0.002}, SYNTHETIC)

    assert np.isin(result.requests["status"], [3]).all()        # all completed
    assert result.kv_tiers["cancelled"][:2].sum() > 0
    assert result.kv_tiers["cancelled"][2] == 0
    bytes_per_block = 16_000.0
    assert (result.kv_tiers["stored_bytes"] == result.kv_tiers["stored_chunks"] * bytes_per_block).all()
