"""Images and videos in pixels and seconds, through experiment files, by the rule of the model's tower."""
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

import simulator
from simulator.assembly.tower_notes import tower_notes
from simulator.assembly.towers import tower_of
from simulator.domain.facts import load_model
from simulator.errors import InputErrors

EXPERIMENT = """
model = {name = "qwen3.5-27b"}
hardware = {name = "h100-sxm-80gb"}
topology = {tensor_parallel = 2}
latency = {backend = "linear", base_us = 10_000}
engine = {num_gpu_blocks = 5000, max_model_len = 60_000, async_scheduling = false, encoder = {}}
[workload]
type = "synthetic"
num_requests = 6
arrival = {process = "poisson", rate_per_s = 1.0}
prompt_tokens = {distribution = "constant", tokens = 20}
output_tokens = {distribution = "constant", tokens = 1}
"""
ONE = {"distribution": "constant", "tokens": 1}
IMAGES = {"count": ONE, "rule": "model", "sizes": [[1080, 1920, 1.0]]}
VIDEOS = {"count": ONE, "clips": [[10.0, 320, 640, 1.0]]}


def run(folder, overrides):
    (folder / "experiment.toml").write_text(EXPERIMENT)
    return simulator.run(folder / "experiment.toml", overrides)


def test_an_image_has_the_tokens_of_the_models_rule(tmp_path):
    # patches of 16 pixels, merged two by two: 33.75 and 60 squares of 32
    result = run(tmp_path, {"workload.images": IMAGES})

    assert set(result.requests["prompt_tokens"]) == {20 + 34 * 60}
    assert set(result.requests["image_tokens"]) == {34 * 60}
    assert result.summary["encoder"] == {"item_tokens": 6 * 2040, "encoded_tokens": 6 * 2040}


def test_a_video_has_the_tokens_of_its_pairs_of_frames(tmp_path):
    # 20 frames in pairs, 10 x 20 squares of 32 pixels
    result = run(tmp_path, {"workload.videos": VIDEOS})

    assert set(result.requests["prompt_tokens"]) == {20 + 10 * 200}
    assert set(result.requests["num_images"]) == {1}


@pytest.mark.parametrize(("keys", "tokens"), [
    ({"frames_per_s": 1.0}, 5 * 200), ({"num_frames": 32}, 16 * 200), ({"max_pixels": 20 * 160 * 320}, 10 * 50)])
def test_frames_and_areas_are_those_given(keys, tokens, tmp_path):
    assert set(run(tmp_path, {"workload.videos": VIDEOS | keys}).requests["image_tokens"]) == {tokens}


def test_videos_follow_images(tmp_path):
    result = run(tmp_path, {"workload.images": IMAGES, "workload.videos": VIDEOS})

    assert set(result.requests["image_tokens"]) == {2040 + 2000}
    assert set(result.requests["num_images"]) == {2}
    assert result.summary["encoder"]["encoded_tokens"] == 6 * 4040


def test_a_video_takes_less_time_than_an_image_of_as_many_tokens(tmp_path):
    # frames attend to themselves: 10 views of 800 patches for one of 8,000
    square = IMAGES | {"sizes": [[1280, 1600, 1.0]]}                # 40 x 50 tokens
    video, image = (run(tmp_path, {f"workload.{key}": given, "workload.num_requests": 1}).iterations["duration_ns"][0]
                    for key, given in (("videos", VIDEOS), ("images", square)))
    flops = 27 * 4 * 1152 * (8000**2 - 10 * 800**2) / 2             # about, of each of two ranks

    assert image - video == pytest.approx(flops / 989.4e12 / 0.62 * 1e9, rel=0.35)


def test_sizes_are_drawn_by_their_weights(tmp_path):
    sizes = [[320, 320, 3.0], [640, 640, 0.0], [320, 640, 1.0]]
    result = run(tmp_path, {"workload.images": IMAGES | {"sizes": sizes}, "workload.num_requests": 200})
    drawn = result.requests["image_tokens"].tolist()

    assert set(drawn) == {100, 200} and 120 < drawn.count(100) < 180


@pytest.mark.parametrize(("overrides", "message"), [
    ({"model.name": "qwen3-8b", "workload.images": IMAGES},
     r"workload\.images\.rule: qwen3-8b has no vision tower, and no rule for sizes in pixels"),
    ({"model": None, "hardware": None, "topology.tensor_parallel": 1, "workload.images": IMAGES},
     r"workload\.images\.rule: needs \[model\]"),
    ({"model.name": "gemma-3-27b", "workload.videos": VIDEOS},
     r"workload\.videos\.clips: models with a tower of kind gemma3 take no videos"),
    ({"model.name": "gemma-3-27b", "workload.images": IMAGES | {"max_pixels": 784}},
     r"workload\.images\.sizes: max_pixels: expected none, found 784: towers of kind gemma3 have no such bound"),
    ({"workload.images": IMAGES | {"sizes": [[1, 300, 1.0]]}}, r"workload\.images\.sizes: an image of 1 x 300"),
    ({"workload.videos": VIDEOS | {"frames_per_s": 1.0, "num_frames": 4}}, "frames_per_s and num_frames both set"),
    ({"workload.videos": VIDEOS | {"clips": [[10.0, 320, 1.0]]}}, "expected .seconds, height, width, weight."),
    ({"workload.videos": VIDEOS | {"clips": []}}, r"workload\.videos\.clips: expected .* at least 1, found"),
    ({"workload.videos": VIDEOS | {"min_pixels": 9, "max_pixels": 4}}, "min_pixels 9 is above max_pixels 4"),
])
def test_sizes_without_a_rule_are_refused(overrides, message, tmp_path):
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, overrides)


def test_pools_with_different_towers_are_refused(tmp_path):
    pools = [{"name": "a", "serves": "x"}, {"name": "b", "serves": "y", "model": {"name": "gemma-3-27b"}}]

    with pytest.raises(InputErrors, match=r"qwen3\.5-27b and gemma-3-27b have different vision towers"):
        run(tmp_path, {"workload.images": IMAGES, "pools": pools})


def test_encoders_of_unknown_kind_are_named():
    site = SimpleNamespace(model=load_model("qwen3-8b"))
    unknown = SimpleNamespace(model=replace(site.model, unknown_towers=("vision_config of radio",)))

    with pytest.raises(InputErrors, match="qwen3-8b has an encoder of unknown kind, vision_config of radio, and no"):
        tower_of([unknown], "workload.videos")
    assert tower_notes(unknown) == (
        "model: vision_config of radio: an encoder of unknown kind; its weights and its work are counted as 0",)
    assert tower_notes(site) == ()


def test_images_that_no_encoder_computes_are_named(tmp_path):
    result = run(tmp_path, {"workload.images": IMAGES, "engine.encoder": None})

    assert ("encoder: no time is counted for the images of prompts, which take up their tokens alone: there is no "
            "[engine.encoder]") in result.summary["diagnosis"]
