"""Models whose layers have block tables of their own, in experiment files."""
import re

import numpy as np
import pytest

import simulator
from simulator import cli
from simulator.errors import InputErrors

BASE = """
[model]
name = "gpt-oss-20b"
[engine]
num_gpu_blocks = 2000
max_model_len = 4096
max_num_seqs = 8
[latency]
backend = "linear"
[workload]
type = "synthetic"
num_requests = 60
[workload.arrival]
process = "poisson"
rate_per_s = 20.0
[workload.prompt_tokens]
distribution = "uniform"
min = 100
max = 1500
[workload.output_tokens]
distribution = "uniform"
min = 1
max = 300
"""
QWEN = {"model.name": "qwen3-next-80b-a3b", "engine.vllm_version": "0.32"}       # 0.33 has blocks of 576
WHOLE = {"engine.disable_hybrid_kv_cache_manager": True}


@pytest.fixture
def run(tmp_path):
    """Return a function that runs the experiment with overrides."""
    path = tmp_path / "groups.toml"
    path.write_text(BASE)
    return lambda overrides=(): simulator.run(path, overrides=dict(overrides))


@pytest.fixture
def refusal(run):
    """Return a function that says how overrides are refused."""
    def of(overrides):
        with pytest.raises(InputErrors) as caught:
            run(overrides)
        return str(caught.value)
    return of


def test_windows_leave_room_for_more_requests(run):
    # Two groups, or one block table: a text of n tokens takes n / 16 + 9 blocks, or n / 16 that are twice as large.
    windows, whole = run({"engine.num_gpu_blocks": 800}), run(WHOLE | {"engine.num_gpu_blocks": 400})

    assert windows.summary["requests"]["completed"] == whole.summary["requests"]["completed"] == 60
    assert windows.summary["ttft_ms"]["mean"] < whole.summary["ttft_ms"]["mean"]


@pytest.mark.parametrize("model", ["gpt-oss-20b", "gemma-3-4b", "llama-4-scout", "mistral-7b", "qwen3-next-80b-a3b",
                                   "mimo-v2-flash", "nemotron-3-nano-30b-a3b"])
@pytest.mark.parametrize("more", [{}, {"engine.enable_prefix_caching": False}, {"engine.async_scheduling": False},
                                  {"topology.pipeline_parallel": 2}])
def test_results_do_not_depend_on_how_they_are_computed(run, model, more):
    overrides = {"model.name": model, "engine.num_gpu_blocks": 3000} | more
    fast, stepwise = run(overrides), run(overrides | {"engine.fast_forward": False})

    assert fast.summary["requests"]["completed"] == 60
    np.testing.assert_array_equal(fast.requests, stepwise.requests)
    np.testing.assert_array_equal(fast.iterations, stepwise.iterations)


def test_prompts_are_computed_to_the_ends_of_blocks_where_states_are_kept(run):
    # A prompt of 1500 tokens, blocks of 544: the last state that a repeat can use is behind token 1087, and the rest is
    # computed in an iteration of its own; without prefix caching there is one state, and one iteration.
    one = QWEN | {"workload.num_requests": 1, "workload.prompt_tokens": {"distribution": "constant", "value": 1500}}

    assert run(one).iterations["prefill_tokens"][:3].tolist() == [1088, 412, 0]
    assert run(one | {"engine.enable_prefix_caching": False}).iterations["prefill_tokens"][:2].tolist() == [1500, 0]


@pytest.mark.parametrize(("interval", "cached"), [
    (None, [0, 512, 512, 1024]),
    (512, [0, 512, 1024, 1024]),
    ("dense", [0, 512, 1024, 1024])])
def test_windows_are_kept_for_others_at_some_places(tmp_path, interval, cached):
    # The first prompt ends with token 521: its window is kept for a hit of 512. The others share 1024 tokens. The
    # second keeps a window for 1520 only; the third finds its full layers and marks the place, for the fourth. Or a
    # window is kept each 512 tokens, or everywhere.
    path = tmp_path / "shared.toml"
    path.write_text(BASE.partition("[workload]")[0] + '[workload]\ntype = "trace"\npath = "shared.csv"\n')
    (tmp_path / "shared.csv").write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n"
        "0,522,1,s:522\n5,1524,1,s:1024/a:500\n10,1524,1,s:1024/b:500\n"
        "15,1524,1,s:1024/c:500\n")
    overrides = {} if interval is None else {"engine.prefix_cache_retention_interval": interval}
    requests = simulator.run(path, overrides=overrides).requests

    assert requests["cached_tokens"].tolist() == cached


APART = {"pools": [{"name": "p", "role": "prefill"}, {"name": "d", "role": "decode"}],
         "hardware": {"name": "h100-sxm-80gb"}}
MOVES = {"protocol": "nixl", "bandwidth_gb_per_s": 10.0}
ROUNDS = ("first_tokens", "new_tokens", "output_tokens")
OFFLOAD = {"cpu_gib": 4.0, "d2h_gb_per_s": 1.0, "h2d_gb_per_s": 1.0, "kv_bytes_per_token": 1e5}


def test_a_hand_over_moves_what_windows_still_need(run):
    # Of 12 layers all tokens, of 12 the 129 blocks of 16 tokens that hold the last 128: 8 or 9. A token of a layer has
    # 2 x 8 heads x 64 x 2 bytes. What the decode replica has of a prompt is not moved.
    result = run(APART | {"kv_transfer": MOVES, "engine.enable_prefix_caching": False})
    blocks = -(-result.requests["prompt_tokens"] // 16)
    in_window = blocks - np.maximum(result.requests["prompt_tokens"] - 127, 0) // 16

    np.testing.assert_array_equal(result.requests["transfer_bytes"], 12 * 2048 * 16 * (blocks + in_window))


@pytest.mark.parametrize(("model", "num_blocks", "most"), [("gpt-oss-20b", 400, 300), ("qwen3-next-80b-a3b", 60, 700)])
def test_what_the_pool_lost_comes_from_the_host(run, model, num_blocks, most):
    # Of 30 conversations at once the pool holds a few
    overrides = {"model.name": model, "hardware.name": "h100-sxm-80gb", "engine.num_gpu_blocks": num_blocks,
                 "engine.max_model_len": 3000,
                 "workload.type": "sessions", "workload.num_sessions": 30, "workload.sessions": {
                     "rounds": {"distribution": "constant", "value": 3}, **{name: {
                         "distribution": "uniform", "min": 100, "max": most} for name in ROUNDS}}}
    tier = {"kv_tiers": {"cpu_gib": 8.0}}
    without, result = run(overrides), run(overrides | tier)
    rows, used = result.kv_tiers[0], result.requests

    assert rows["started"] == rows["stores"] + rows["loads"] + rows["underway"] and rows["loads"] > 0
    assert used["loaded_tokens"].sum() > 0 and used["stored_tokens"].sum() > 0
    assert used["cached_tokens"].sum() > without.requests["cached_tokens"].sum()
    np.testing.assert_array_equal(used["output_tokens"], without.requests["output_tokens"])


CHUNK_GIB = 12 * 2048 * 16 / 2**30      # of gpt-oss-20b: 12 layers of either kind, 2 x 8 heads x 64 x 2 bytes a token
DISK = {"name": "disk", "capacity_gib": 200 * CHUNK_GIB}


@pytest.mark.parametrize(("host", "levels", "cached", "read"), [
    (73.5, [], [0, 0, 0], []),
    (73.5, [DISK], [0, 0, 1040], [73]),
    (150, [DISK], [0, 0, 1040], [0]),
    (73.5, [DISK | {"capacity_gib": 100.5 * CHUNK_GIB}, DISK | {"name": "store", "scope": "cluster"}], [0, 0, 1040],
     [27, 46])])
def test_a_level_has_the_chunks_of_all_groups_that_a_hit_needs(run, tmp_path, host, levels, cached, read):
    # A prompt of 1041 tokens keeps 65 chunks of full attention, and of the window of 128 the 8 before token 1040. The
    # second evicts the first from the pool (2 x 66 blocks), from a host of 73 chunks, and but for 27 chunks from a disk
    # of 100: the third reads 73 chunks from where they are.
    (tmp_path / "repeat.csv").write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n"
        "0,1041,1,s:1041\n50,1041,1,t:1041\n100,1041,1,s:1041\n")
    result = run({"hardware.name": "h100-sxm-80gb", "engine.num_gpu_blocks": 140, "engine.max_model_len": 1100,
                  "workload": {"type": "trace", "path": str(tmp_path / "repeat.csv")},
                  "kv_tiers": {"cpu_gib": host * CHUNK_GIB, "secondary": levels}})

    assert result.requests["cached_tokens"].tolist() == cached
    assert result.kv_tiers["loaded_chunks"][1:].tolist() == read
    assert result.requests["loaded_tokens"].tolist() == cached


@pytest.mark.parametrize(("model", "num_blocks", "most", "host_gib"), [
    ("gpt-oss-20b", 400, 300, 0.2), ("qwen3-next-80b-a3b", 60, 700, 2.0)])
def test_what_the_host_lost_comes_from_a_level(run, model, num_blocks, most, host_gib):
    overrides = {"model.name": model, "hardware.name": "h100-sxm-80gb", "engine.num_gpu_blocks": num_blocks,
                 "engine.max_model_len": 3000,
                 "workload.type": "sessions", "workload.num_sessions": 30, "workload.sessions": {
                     "rounds": {"distribution": "constant", "value": 3}, **{name: {
                         "distribution": "uniform", "min": 100, "max": most} for name in ROUNDS}}}
    tier = {"kv_tiers": {"cpu_gib": host_gib}}
    with_level = overrides | {"kv_tiers": tier["kv_tiers"] | {"secondary": [{"name": "disk", "capacity_gib": 50.0}]}}
    without, result = run(overrides | tier), run(with_level)
    host, disk = result.kv_tiers

    assert disk["loaded_chunks"] > 0 and disk["stored_chunks"] > 0 and host["loaded_chunks"] > 0
    assert disk["started"] == disk["stores"] + disk["loads"] + disk["cancelled"] + disk["underway"]
    assert result.requests["cached_tokens"].sum() > without.requests["cached_tokens"].sum()
    np.testing.assert_array_equal(result.requests["output_tokens"], without.requests["output_tokens"])
    np.testing.assert_array_equal(result.requests, run(with_level | {"engine.fast_forward": False}).requests)


def test_a_chunk_in_host_memory_has_a_page_for_a_layer_of_each_group(run):
    # gpt-oss-20b: 12 layers of either kind; a token of a layer has 2 x 8 heads x 64 x 2 bytes.
    rows = run({"hardware.name": "h100-sxm-80gb", "kv_tiers": {"cpu_gib": 8.0}}).kv_tiers[0]

    assert rows["stored_bytes"] == rows["stored_chunks"] * 12 * 2048 * 16
    assert rows["capacity_chunks"] == 8 * 2**30 // (12 * 2048 * 16)


@pytest.mark.parametrize("caching", [False, True])
def test_a_hand_over_of_states_leaves_the_last_token(run, caching):
    # qwen3-next-80b-a3b: of 12 layers all tokens in blocks of 544, 2 x 2 heads x 256 x 2 bytes each; of 36 one state:
    # 32 heads of 128 x 128, and 3 times 8192 channels of the convolution, 2 bytes each. The decode replica computes the
    # last token of a prompt, which the states must not know.
    result = run(APART | QWEN | {"kv_transfer": MOVES, "engine.enable_prefix_caching": caching,
                                 "engine.num_gpu_blocks": 400})
    blocks = -(-(result.requests["prompt_tokens"] - 1) // 544)
    legs = result.legs

    assert (result.requests["cached_tokens"] == 0).all()
    np.testing.assert_array_equal(
        result.requests["transfer_bytes"], blocks * 12 * 544 * 2048 + 36 * 2 * (32 * 128 * 128 + 3 * 8192))
    np.testing.assert_array_equal(legs["external_tokens"][legs["role"] == 2], result.requests["prompt_tokens"] - 1)


def test_a_prompt_of_one_token_is_handed_over_whole(run):
    one = run(APART | QWEN | {"kv_transfer": MOVES, "workload.prompt_tokens.min": 1, "workload.prompt_tokens.max": 1})

    assert (one.requests["transfer_bytes"] == 12 * 544 * 2048 + 36 * 2 * (32 * 128 * 128 + 3 * 8192)).all()
    assert (one.requests["output_tokens"] > 0).all()


def test_a_hand_over_of_given_groups_takes_the_bytes_of_a_token(run, refusal):
    groups = [{"kind": "full_attention"}, {"kind": "sliding_attention", "window": 128}]
    given = APART | {"engine.kv_cache_groups": groups}
    assert "kv_transfer.kv_bytes_per_token: missing; expected a number" in refusal(given | {"kv_transfer": MOVES})

    counts = run(given | {"kv_transfer": MOVES | {"kv_bytes_per_token": 24 * 2048}}).requests["transfer_bytes"]
    np.testing.assert_array_equal(counts, run(APART | {"kv_transfer": MOVES}).requests["transfer_bytes"])


def test_groups_can_be_given_without_a_model(tmp_path):
    text = BASE.replace('[model]\nname = "gpt-oss-20b"\n', "") + (
        '[[engine.kv_cache_groups]]\nkind = "full_attention"\n'
        '[[engine.kv_cache_groups]]\nkind = "sliding_attention"\nwindow = 128\n')
    path, of_model = tmp_path / "given.toml", tmp_path / "model.toml"
    path.write_text(text)
    of_model.write_text(BASE)
    given, model = simulator.run(path), simulator.run(of_model)

    np.testing.assert_array_equal(given.requests, model.requests)  # the order of groups decides over names of blocks


@pytest.mark.parametrize(("overrides", "message"), [
    ({"model.name": "llama-3.1-8b", "engine.prefix_cache_retention_interval": 0},
     "engine.prefix_cache_retention_interval: expected none, found 0: all layers share one block table"),
    ({"engine.prefix_cache_retention_interval": 64, "engine.enable_prefix_caching": False},
     "engine.prefix_cache_retention_interval: expected none, found 64: enable_prefix_caching is false"),
    (WHOLE | {"model.name": "llama-3.1-8b"}, "engine.disable_hybrid_kv_cache_manager: expected false, found true: all "
     "layers are of one kind"),
    (WHOLE | {"model.name": "mistral-7b"}, "all layers are of one kind"),
    (WHOLE | QWEN, "engine.disable_hybrid_kv_cache_manager: expected false, found true: qwen3-next-80b-a3b has layers "
     "of linear attention"),
    ({"engine.vllm_version": "0.10"},
     'engine.vllm_version: expected "0.32" or "0.33", or disable_hybrid_kv_cache_manager = true'),
    ({"engine.kv_cache_groups": [{"kind": "full_attention"}], **WHOLE}, "expected false beside kv_cache_groups"),
    ({"engine.kv_cache_groups": [{"kind": "chunked_attention", "window": 64}, {"kind": "full_attention",
                                                                               "block_size": 32}]},
     "engine.kv_cache_groups: expected one block_size where a group is of chunked_attention"),
    ({"engine.kv_cache_groups": [{"kind": "full"}]}, "full_attention"),
    (APART | {"kv_transfer": MOVES | {"volume": "full_prompt"}}, 'kv_transfer.volume: expected "missing"'),
    (APART | {"kv_transfer": MOVES | {"protocol": "sglang"}}, 'kv_transfer.first_token: expected "recompute" '
    'with layers'),
    (APART | {"kv_transfer": MOVES | {"protocol": "mooncake", "granularity": "layer"}},
     'kv_transfer.granularity: expected "prompt" with layers of several kinds and [kv_transfer] in pool "p", '
     'found "layer"'),
    (APART | {"kv_transfer": MOVES, "kv_tiers": OFFLOAD},
     "pools.p.kv_tiers: expected none with layers of several kinds and [kv_transfer]: KV transfer together with"),
    ({"kv_tiers": OFFLOAD | {"protocol": "lmcache"}}, "it is not built for layers that have a block "
     'table of their own for the last 128 tokens, blocks of 16 tokens; "vllm_offload" knows'),
    ({"model.name": "llama-4-scout", "kv_tiers": OFFLOAD}, "for chunks of 8192 tokens"),
    (QWEN | {"engine.enable_prefix_caching": False, "kv_tiers": OFFLOAD},
     "kv_tiers.protocol: it finds no states of linear attention without engine.enable_prefix_caching = true"),
    ({"topology.replicas": 2, "cluster.rescheduling": {"kv_bytes_per_token": 1e5, "bandwidth_gb_per_s": 1.0}},
     'cluster.rescheduling.mode: expected "recompute" with layers of several kinds, found "live"'),
])
def test_what_is_not_built_is_refused_with_the_reason(refusal, overrides, message):
    assert message in refusal(overrides)


def test_a_text_takes_one_block_of_each_group_of_states(run):
    # 1500 tokens take 94 blocks of 16 of full attention, and of three groups of states two each at a time, as in vLLM.
    groups = [{"kind": "full_attention"}, *[{"kind": "linear_attention"}] * 3]
    result = run({"engine.kv_cache_groups": groups, "engine.num_gpu_blocks": 150})

    assert (result.requests["completed_ns"] > 0).all()


def test_groups_that_are_given_need_the_number_of_blocks(tmp_path):
    path = tmp_path / "given.toml"
    path.write_text(BASE.replace("num_gpu_blocks = 2000\n", "") + '[hardware]\nname = "h100-sxm-80gb"\n')
    with pytest.raises(InputErrors, match="kv_cache_groups: expected num_gpu_blocks beside them"):
        simulator.run(path, overrides={"engine.kv_cache_groups": [{"kind": "full_attention"}]})


def test_requests_still_move_where_they_are_computed_anew(run):
    moving = {"topology.replicas": 2, "cluster.routing.policy": "always_busiest",
              "cluster.rescheduling": {"mode": "recompute", "interval_s": 0.05, "least_difference": 0.01}}

    assert run(moving).summary["requests"]["completed"] == 60


def test_a_text_that_no_pool_holds_is_dropped(run):
    # 1500 tokens take 94 blocks of full layers and, at 8192 tokens an iteration, as many of the window
    result = run({"engine.num_gpu_blocks": 150, "workload.prompt_tokens": {"distribution": "constant", "value": 1500}})

    assert result.summary["requests"]["dropped"] == 60


@pytest.mark.parametrize(("overrides", "lines"), [
    ([], ["#   1 group of layers: the last 128 tokens, blocks of 16 tokens",
          "#   1 group of layers: full attention, blocks of 16 tokens"]),
    (["hardware.name=h100-sxm-80gb", "engine.disable_hybrid_kv_cache_manager=true"],
     ["#   one block table for all layers: each keeps a token to the end, whatever its window"]),
    (["hardware.name=h100-sxm-80gb", "engine.scheduler=blis", "engine.max_num_seqs=8"],
     ["#   one block table for all layers: each keeps a token to the end, whatever its window"])])
def test_validate_says_which_layers_share_a_block_table(tmp_path, capsys, overrides, lines):
    path = tmp_path / "groups.toml"
    path.write_text(BASE)

    assert cli.main(["validate", str(path), *[part for each in overrides for part in ("--set", each)]]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if re.search("group of|block table", line)] == lines
