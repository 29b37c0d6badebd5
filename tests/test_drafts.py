"""Draft models in experiments: what they take and hold, and where they cannot be had."""
from math import floor

import numpy as np
import pytest
from msgspec.structs import replace

import simulator
from simulator.assembly.drafts import why_not_beside
from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site
from simulator.config.load import load_experiment
from simulator.domain.drafter_memory import of_draft_model, of_head, why_not_loaded
from simulator.domain.facts import load_model, names
from simulator.errors import InputErrors
from support.small_models import SLIDING, deploy

TEXT = """
model.name = "qwen3-32b"
hardware.name = "h100-sxm-80gb"
topology = {tensor_parallel = 2}
latency.backend = "roofline"
workload = {type = "trace", path = "trace.csv"}
[engine]
max_model_len = 8192
"""
DRAFT = {"method": "draft_model", "model": "qwen3-0.6b", "num_tokens": 3}


@pytest.fixture
def load(tmp_path):
    """Return a function that reads TEXT, with [engine.speculative] and other overrides."""
    (tmp_path / "a.toml").write_text(TEXT)
    rows = [f"{0.05 * i},{50 + 37 * i % 400},{20 + 13 * i % 60}" for i in range(40)]
    (tmp_path / "trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")

    def load(speculative=None, **overrides):
        engine = {"engine.speculative": speculative} if speculative else {}
        return load_experiment(tmp_path / "a.toml", engine | {
            key.replace("__", "."): value for key, value in overrides.items()})

    return load


def us(experiment, *batch):
    return 1e6 * model_of(experiment).predict(*batch)


def model_of(experiment):
    return latency_model(Site(experiment).check())


def test_passes_are_those_of_the_draft_model_by_itself(load):
    # The first pass computes 3 + 1 verified tokens of each sequence and the one that was sampled besides; two more
    # compute one token of each.
    draft = load(model__name="qwen3-0.6b")
    expected = us(draft, [], [1001] * 8, 5) + 2 * us(draft, [], [1001] * 8)
    assert model_of(load(DRAFT)).drafting_us([], [1000] * 8, 4) == pytest.approx(expected)


def test_a_prompt_is_computed_by_both(load):
    draft = load(model__name="qwen3-0.6b")
    expected = us(draft, [(500, 200)], []) + 2 * us(draft, [], [700])
    assert model_of(load(DRAFT)).drafting_us([(500, 200)], []) == pytest.approx(expected)


def test_one_accelerator_may_draft_for_all(load):
    draft = load(model__name="qwen3-0.6b", topology__tensor_parallel=1)
    expected = us(draft, [], [1001] * 8, 5) + 2 * us(draft, [], [1001] * 8)
    alone = load(DRAFT | {"draft_tensor_parallel_size": 1})
    assert model_of(alone).drafting_us([], [1000] * 8, 4) == pytest.approx(expected)


def test_host_times_are_added_to_passes(load):
    given = DRAFT | {"drafter_forward_us": 40.0, "drafter_per_sequence_us": 2.0}
    batch = [], [1000] * 8, 4
    assert (model_of(load(given)).drafting_us(*batch) - model_of(load(DRAFT)).drafting_us(*batch)
            == pytest.approx(3 * 40.0 + 8 * 2.0))


def test_a_share_says_the_time_instead(load):
    batch = [], [1000] * 8, 4
    one, other = (model_of(load({name: DRAFT[name] for name in names} | {"drafter_share": 0.1}, **more))
                  for names, more in ((tuple(DRAFT), {}),
                                      (("method", "num_tokens"), {"engine__num_gpu_blocks": 1000})))
    assert one.drafting_us(*batch) == other.drafting_us(*batch)


def test_runs_ahead_change_nothing(load, tmp_path):
    fast, slow = (simulator.run(load(DRAFT, engine__fast_forward=is_fast, engine__async_scheduling=False),
                                out=tmp_path / str(is_fast)) for is_fast in (True, False))
    np.testing.assert_array_equal(fast.requests, slow.requests)
    np.testing.assert_array_equal(fast.iterations, slow.iterations)
    assert fast.summary["speculation"] == slow.summary["speculation"]


# ---- memory

GRAPHS = {"engine__cuda_graphs__memory_gib": 0.5}       # with drafts fewer sizes are captured


def test_blocks_are_what_weights_and_kv_of_both_leave(load):
    alone, both = (Site(load(each, **GRAPHS)).check() for each in (None, DRAFT))
    held = of_draft_model(both.draft)
    assert held.kv_bytes_per_token == 28 * 2 * 2 * 4 * 128          # half of 8 heads, in 16 bits
    assert both.memory.kv_bytes_per_token == alone.memory.kv_bytes_per_token + held.kv_bytes_per_token
    left = alone.memory.kv_cache_bytes - held.weights_bytes
    assert both.num_gpu_blocks == floor(left / (16 * both.memory.kv_bytes_per_token))
    assert any("weights of the drafter" in line for line in both.explain())
    assert any("of the bytes of a token are the drafter's" in line for line in both.explain())
    assert not any("drafter" in line for line in alone.explain())


def test_a_head_holds_memory_too(load):
    alone, both = (Site(load(each, **GRAPHS)).check() for each in (None, {"method": "eagle3", "num_tokens": 3}))
    held = of_head(both.deployment, "eagle3")
    assert both.memory.drafter_bytes == held.weights_bytes
    assert both.num_gpu_blocks == floor((alone.memory.kv_cache_bytes - held.weights_bytes) / (
        16 * (alone.memory.kv_bytes_per_token + held.kv_bytes_per_token)))


def test_a_head_joins_the_layers_that_attend_to_the_whole_context(load):
    # gpt-oss-20b: 12 layers with windows and 12 without; with the head 13, and a block has pages for as many
    head = {"method": "eagle3", "num_tokens": 3}
    alone, both = (Site(load(each, model__name="gpt-oss-20b")).check() for each in (None, head))
    assert [list(map(len, site.group_plan.members)) for site in (alone, both)] == [[12, 12], [12, 13]]
    assert both.memory.block_bytes == alone.memory.block_bytes / 12 * 13
    given = Site(load(head, model__name="gpt-oss-20b", engine__num_gpu_blocks=1100)).check()
    assert given.layer_groups == both.layer_groups


@pytest.mark.parametrize(("pattern", "ways", "why"), [
    ("FS", {}, ""), ("FS", {"decode_context_parallel": 2}, "ranks share the context of sliding"),
    ("F", {"decode_context_parallel": 2}, "")])
def test_where_a_drafter_has_no_place_beside_groups(pattern, ways, why):
    found = why_not_beside(deploy(replace(SLIDING, num_mtp_layers=1, layer_pattern=pattern), **ways))

    assert found.startswith(why) and bool(found) == bool(why)


def test_modules_with_a_window_join_the_layers_that_have_it(load):
    # MiMo-V2-Flash: 9 layers attend to the whole context and 39 to 128 tokens, in 5 groups of 9; a module is the 40th.
    # By vLLM's rule the groups are as large as the smaller kind.
    module = {"method": "mtp", "num_tokens": 1}
    place = {"model__name": "mimo-v2-flash", "topology__tensor_parallel": 8, "hardware__name": "b200-sxm-180gb"}
    alone, both = (Site(load(each, **place)).check() for each in (None, module))
    groups = [list(map(len, site.group_plan.members)) for site in (alone, both)]
    assert groups == [[9, 8, 8, 8, 8, 7], [9, 8, 8, 8, 8, 8]]
    assert both.memory.block_bytes == alone.memory.block_bytes


@pytest.mark.parametrize("blocks", [{}, {"engine__num_gpu_blocks": 3000}])
@pytest.mark.parametrize("name", ["gemma-3-27b", "gpt-oss-20b", "qwen3-32b"])
def test_mtp_is_refused_for_the_modules_that_a_checkpoint_lacks(load, name, blocks):
    with pytest.raises(InputErrors) as raised:
        Site(load({"method": "mtp", "num_tokens": 1}, model__name=name, **blocks)).check()

    assert str(raised.value).endswith(
        f"engine.speculative.method: {name} has no MTP modules: its file has num_mtp_layers = 0; expected another "
        "method: vLLM does not start")


@pytest.mark.parametrize("name", ["minimax-m2.7", "minimax-m2.7-nvfp4"])
def test_mtp_is_refused_for_modules_that_vllm_does_not_load(load, name):
    with pytest.raises(InputErrors) as raised:
        Site(load({"method": "mtp", "num_tokens": 3}, model__name=name, engine__num_gpu_blocks=3000,
                  topology__tensor_parallel=8)).check()

    assert str(raised.value).endswith(
        f"engine.speculative.method: expected another method: {name} declares num_mtp_layers = 3, but vLLM has no "
        "drafter for the MTP modules of MiniMaxM2ForCausalLM, and does not load them")


def test_modules_of_all_other_architectures_are_loaded():
    models = [model for name in names("model") if (model := load_model(name)).num_mtp_layers]

    assert {model.architecture for model in models if why_not_loaded(model.architecture)} == {"MiniMaxM2ForCausalLM"}
    assert {"DeepseekV4ForCausalLM", "GlmMoeDsaForCausalLM", "NemotronHForCausalLM"} <= {
        model.architecture for model in models if not why_not_loaded(model.architecture)}


SUFFIX = {"method": "suffix", "num_tokens": 3, "drafter_per_sequence_us": 20.0, "acceptance": {"mean_length": 1.8}}


@pytest.mark.parametrize(("method", "keys", "message"), [
    ("suffix", {"engine__vllm_version": "0.10"}, "vLLM 0.10 does not have it"),
    ("suffix", {"engine__async_scheduling": True}, 'expected false with method = "suffix", found true'),
    ("medusa", {"engine__vllm_version": "0.33"}, "vLLM 0.33 does not have it")])
def test_where_a_method_of_drafting_does_not_run(load, method, keys, message):
    drafts = SUFFIX if method == "suffix" else {"method": method, "num_tokens": 3}
    with pytest.raises(InputErrors, match=message):
        load(drafts, **keys)


@pytest.mark.parametrize("version", ["0.32", "0.33"])
def test_suffix_decoding_holds_nothing_and_is_not_asynchronous(load, version):
    site = Site(load(SUFFIX, engine__vllm_version=version)).check()
    assert site.memory.drafter_bytes == 0
    assert site.pool.engine.parameters.async_scheduling is False


def test_n_grams_hold_nothing(load):
    alone, looked_up = (Site(load(each, **GRAPHS)).check() for each in (
        None, {"method": "ngram", "num_tokens": 3, "drafter_per_sequence_us": 5.0}))
    assert looked_up.num_gpu_blocks == alone.num_gpu_blocks


def test_the_last_stage_has_the_drafter(load):
    # Of 64 layers each of two stages has 32; embedding and head are of the same size.
    stages = {"topology__pipeline_parallel": 2, "topology__tensor_parallel": 1}
    alone, both = (Site(load(each, **stages)).check() for each in (None, DRAFT))
    assert both.memory.drafter_bytes == of_draft_model(both.draft).weights_bytes
    assert both.num_gpu_blocks < alone.num_gpu_blocks


# ---- what cannot be had

@pytest.mark.parametrize(("speculative", "overrides", "message"), [
    (DRAFT | {"model": "llama-3.2-1b"}, {}, "expected the vocabulary of qwen3-32b, 151936 tokens, found llama-3.2-1b"),
    (DRAFT | {"draft_tensor_parallel_size": 4}, {}, "expected 1 or topology.tensor_parallel = 2, found 4"),
    (DRAFT, {"latency": {"backend": "linear"}},
     '"linear", found .*: it has no prices of another model: expected drafter_share'),
    (DRAFT, {"engine__max_model_len": 65536, "engine__allow_long_max_model_len": True},
     "qwen3-0.6b was made for 40960 tokens, engine.max_model_len is 65536"),
    (DRAFT | {"model": "gemma-3-1b"}, {}, "expected layers of full attention alone, found others in gemma-3-1b"),
    ({"method": "draft_model", "num_tokens": 3, "drafter_share": 0.1}, {}, "model: missing; expected the draft m"),
    ({"method": "mtp", "num_tokens": 1}, {}, "method: qwen3-32b has no MTP modules"),
    ({"method": "mtp", "num_tokens": 1}, {"model__name": "llama-4-scout"}, "method: llama-4-scout has no MTP modules")])
def test_what_is_refused_with_its_reason(load, speculative, overrides, message):
    with pytest.raises(InputErrors, match=message):
        model_of(load(speculative, **overrides))


@pytest.mark.parametrize(("keys", "message"), [
    ({"method": "eagle3", "model": "qwen3-0.6b"}, 'model: expected none, or method = "draft_model"; found method = e'),
    ({"method": "draft_model", "drafter_share": 0.1, "draft_tensor_parallel_size": 1},
     "draft_tensor_parallel_size: expected none without model"),
    (DRAFT | {"config": "config.json"}, "config: expected none beside model")])
def test_keys_that_contradict_each_other_are_refused(load, keys, message):
    with pytest.raises(InputErrors, match=message):
        load({"num_tokens": 3} | keys)


@pytest.mark.parametrize("price", [{"drafter_share": 0.1}, {"drafter_forward_us": 300.0}])
def test_prices_that_are_given_go_with_any_backend(load, price):
    batch = [], [1000] * 8, 4
    model = model_of(load(DRAFT | price, latency={"backend": "linear"}))
    assert model.drafting_us(*batch) > 0
    assert model.drafting_us(*batch) != model_of(load(DRAFT)).drafting_us(*batch)


def test_draft_model_keeps_the_kv_cache_that_the_target_declares(load):
    declared = Site(load(DRAFT | {"model": "llama-3.2-1b"}, model__name="llama-3.1-70b-fp8")).check()
    plain = Site(load(DRAFT | {"model": "llama-3.2-1b"}, model__name="llama-3.1-70b",
                                 topology__tensor_parallel=4)).check()

    assert (declared.draft.kv_cache_bytes, plain.draft.kv_cache_bytes) == (1, 2)
