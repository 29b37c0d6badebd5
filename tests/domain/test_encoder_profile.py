"""The encoder's part of vLLM's profile run: which items, and the memory that they take."""
import pytest

import simulator
from simulator.assembly.site import sites_of
from simulator.config.load import load_experiment
from simulator.domain.deployment import Deployment
from simulator.domain.encoder_profile import NOTHING, EncoderPeak, ItemLimits, encoder_peak, largest_item
from simulator.domain.facts import load_model
from simulator.domain.parallelism import Parallelism
from simulator.errors import InputErrors

EXPERIMENT = """
model = {{name = "{model}"}}
hardware = {{name = "h100-sxm-80gb"}}
engine = {{max_model_len = 32768, {engine}}}
workload = {{type = "trace", path = "t.csv"}}
"""


@pytest.fixture
def planned(tmp_path):
    """Return a function that plans the memory of a model with these keys of [engine]."""
    def planned(model, engine="", **overrides):
        (tmp_path / "a.toml").write_text(EXPERIMENT.format(model=model, engine=engine))
        return sites_of(load_experiment(tmp_path / "a.toml", overrides))[0].check().memory
    return planned


NO_LIMITS = ItemLimits()


def peak(model, tokens=8192, ranks=1, limits=NO_LIMITS, longest=32_768, requests=1024):
    deployment = Deployment(model=load_model(model), accelerator=None,
                            parallelism=Parallelism(tensor_parallel=ranks))
    return encoder_peak(deployment, limits, (tokens, requests), longest)


@pytest.mark.parametrize(("model", "longest", "tokens"), [
    ("gemma-3-27b", 32_768, 256), ("gemma-4-26b-a4b", 32_768, 32 * 78), ("qwen3-vl-8b", 32_768, 16_384),
    ("qwen2-vl-7b", 4096, 16_384), ("qwen2-vl-7b", 40_000, 2 * 16_384), ("qwen2-vl-7b", 10**6, 7 * 16_384)])
def test_the_largest_item_is_the_family_s(model, longest, tokens):
    assert largest_item(load_model(model).vision, ItemLimits(), longest)[0].tokens == tokens


def test_items_are_as_many_as_the_budget_has_room_for():
    # 32 images of 4,096 patches for 8,192 tokens; of a patch 588 pixels, twice 1,152 and twice 4,304 elements of 2
    # bytes; 8,192 embeddings of 5,376 elements
    whole = peak("gemma-3-27b")
    assert whole.peak_bytes == 32 * 4096 * (3 * 14**2 + 2 * 1152 + 2 * 4304) * 2
    assert whole.embedding_bytes == 8192 * 5376 * 2
    assert peak("gemma-3-27b", tokens=2048).peak_bytes == whole.peak_bytes / 4
    assert peak("gemma-3-27b", tokens=100).peak_bytes == whole.peak_bytes / 32         # one image at least
    assert peak("gemma-3-27b", ranks=2).peak_bytes == 32 * 4096 * (3 * 14**2 + 2 * 1152 + 4304) * 2
    assert peak("gemma-3-27b", requests=4, limits=ItemLimits(images=2)).peak_bytes == whole.peak_bytes / 4


def test_nothing_is_encoded_where_no_item_is_allowed():
    assert peak("qwen3-8b") == NOTHING                                  # no tower
    assert peak("gemma-3-27b", limits=ItemLimits(images=0)) == NOTHING  # it takes no videos
    assert peak("gemma-3-27b", limits=ItemLimits(is_profiled=False)) == NOTHING
    assert peak("qwen2-vl-7b", limits=ItemLimits(images=0)).peak_bytes > 0
    assert peak("qwen2-vl-7b", limits=ItemLimits(images=0, videos=0)) == NOTHING


def test_an_encoder_raises_the_peak_or_its_embeddings_stay():
    assert EncoderPeak(300.0, 10.0).beyond(100.0) == 200.0
    assert EncoderPeak(300.0, 10.0).beyond(295.0) == EncoderPeak(300.0, 10.0).beyond(1e9) == 10.0
    assert NOTHING.beyond(0.0) == 0.0


def test_the_plan_counts_the_encoder_of_the_first_stage(planned):
    whole, skipped = planned("gemma-3-27b"), planned("gemma-3-27b", "skip_mm_profiling = true")
    text = planned("gemma-3-27b", "language_model_only = true")
    assert whole.kv_cache_bytes + whole.encoder_bytes == pytest.approx(skipped.kv_cache_bytes)
    assert whole.encoder_bytes == pytest.approx(1.78e9, rel=0.01) and skipped.encoder_bytes == 0.0
    assert "more of the encoder, by its shape alone" in whole.explain()
    assert "encoder" not in skipped.explain() + text.explain()
    assert skipped.weights_bytes - text.weights_bytes == pytest.approx(2 * load_model("gemma-3-27b").vision_parameters)
    assert planned("gemma-3-27b", "limit_mm_per_prompt = {image = 0}").num_gpu_blocks == text.num_gpu_blocks
    assert planned("qwen3-vl-8b", 'scheduler = "tensorrt_llm"').encoder_bytes == 0.0    # no rule of its is known


@pytest.mark.parametrize(("model", "engine", "message"), [
    ("qwen3-8b", "skip_mm_profiling = true", "engine.skip_mm_profiling: expected none: qwen3-8b takes text alone"),
    ("qwen3-8b", "limit_mm_per_prompt = {image = 1}", "engine.limit_mm_per_prompt: expected none: qwen3-8b takes"),
    ("gemma-3-27b", "language_model_only = true, limit_mm_per_prompt = {image = 1}",
     "limit_mm_per_prompt: expected none beside language_model_only"),
    ("gemma-3-27b", "language_model_only = true, skip_mm_profiling = true", "skip_mm_profiling: expected false"),
    ("gemma-3-27b", 'vllm_version = "0.10", language_model_only = true', "vLLM 0.10.1 has no such argument")])
def test_limits_without_effect_are_refused(planned, model, engine, message):
    with pytest.raises(InputErrors, match=message):
        planned(model, engine)


@pytest.mark.parametrize(("engine", "message"), [
    ("limit_mm_per_prompt = {image = 1, video = 0}", "limit_mm_per_prompt: expected room for the 3 items"),
    ("language_model_only = true", "language_model_only: expected room for the 3 items")])
def test_prompts_with_more_items_than_allowed_are_refused(tmp_path, engine, message):
    (tmp_path / "a.toml").write_text(EXPERIMENT.format(model="gemma-3-27b", engine=engine).replace(
        'type = "trace", path = "t.csv"', 'type = "synthetic", num_requests = 2, '
        'arrival = {process = "constant", rate_per_s = 1.0}, '
        'prompt_tokens = {distribution = "constant", value = 2000}, '
        'output_tokens = {distribution = "constant", value = 2}, images = {rule = "tokens_per_image", '
        'tokens_per_image = 256, count = {distribution = "constant", value = 3}}'))
    with pytest.raises(InputErrors, match=message):
        simulator.run(tmp_path / "a.toml")
