"""Images in prompts, through an experiment file, by timelines worked out by hand."""
import pytest

import simulator
from simulator.errors import InputErrors
from support.encoders import EXPERIMENT, prompts_in


def run(folder, prompts, engine="encoder = {us_per_embedding = 10}", overrides=None):
    """Serve requests with these prompts, all at 0 s, one token of output each; a step takes 10 ms besides."""
    prompts_in(folder, prompts)
    (folder / "experiment.toml").write_text(EXPERIMENT % engine)
    return simulator.run(folder / "experiment.toml", overrides)


def test_m1_the_fourth_image_does_not_fit_the_budget(tmp_path):
    # 8192 embeddings a step: three times 2304 leave 1280; the fourth prompt is computed up to its image, 50 tokens
    result = run(tmp_path, [f"t{i}:50/i{i}.img:2304/u{i}:50" for i in range(4)])

    assert result.iterations["prefill_tokens"].tolist() == [3 * 2404 + 50, 2354]
    assert result.iterations["duration_ns"].tolist() == [(10_000 + 10 * 6912) * 1000, (10_000 + 10 * 2304) * 1000]
    assert result.summary["encoder"] == {"item_tokens": 9216, "encoded_tokens": 9216}


def test_an_image_of_several_prompts_is_encoded_once(tmp_path):
    # other texts stand in front of it: nothing of the KV is found
    result = run(tmp_path, ["a:40/cat.img:100/:10", "b:40/cat.img:100/:10"])

    assert result.requests["encoded_tokens"].tolist() == [100, 0]
    assert result.requests["image_tokens"].tolist() == [100, 100]
    assert result.iterations["duration_ns"].tolist() == [11_000_000]


def test_pieces_of_unlike_length_are_unlike_images(tmp_path):
    result = run(tmp_path, ["a:40/cat.img:100/:10", "b:40/cat.img:90/:10"])

    assert result.requests["encoded_tokens"].tolist() == [100, 90]


def test_an_image_in_a_prefix_that_is_found_is_not_encoded(tmp_path):
    # the second prompt comes when 160 tokens of the first are in KV; a cache of 100 places has forgotten the image
    lines = "arrived_at,num_prefill_tokens,num_decode_tokens,prompt\n0,180,1,a:40/x.img:100/b:40\n" \
        "1,100,1,y.img:100\n2,180,1,a:40/x.img:100/b:40\n"
    (tmp_path / "trace.csv").write_text(lines)
    (tmp_path / "experiment.toml").write_text(EXPERIMENT % "encoder = {us_per_embedding = 10, cache_tokens = 100}")

    result = simulator.run(tmp_path / "experiment.toml")

    assert result.requests["encoded_tokens"].tolist() == [100, 100, 0]
    assert result.requests["cached_tokens"].tolist() == [0, 0, 176]


def test_the_rate_of_an_encoder_says_the_same_as_its_price(tmp_path):
    by_price, by_rate = (run(tmp_path, ["a.img:100/:10"], f"encoder = {{{price}}}").iterations["duration_ns"].tolist()
                         for price in ("us_per_embedding = 20", "tokens_per_s = 50_000"))

    assert by_price == by_rate == [12_000_000]


def test_without_an_encoder_images_take_their_tokens_alone(tmp_path):
    result = run(tmp_path, ["a.img:100/:10"], "max_num_seqs = 8")

    assert result.iterations["duration_ns"].tolist() == [10_000_000]
    assert "encoder" not in result.summary
    assert "encoded_tokens" not in result.requests.dtype.names


def test_a_chunk_does_not_end_inside_of_an_image_that_it_does_not_begin_in(tmp_path):
    # 72 tokens a step: 30 before the first image of 50; it and 20 after it, as the next one would be cut
    result = run(tmp_path, ["a:30/x.img:50/b:20/y.img:60/c:12"], """max_num_batched_tokens = 72, max_num_seqs = 8,
        encoder = {disable_chunked_mm_input = true}""")

    assert result.iterations["prefill_tokens"].tolist() == [30, 70, 72]


@pytest.mark.parametrize(("engine", "message"), [
    ("encoder = {us_per_embedding = 1, tokens_per_s = 1}", "say the same; give one of them"),
    ("vllm_version = '0.10', encoder = {}", "what vLLM 0.10 keeps of images is by request"),
    ("max_num_batched_tokens = 90, max_num_seqs = 8, encoder = {disable_chunked_mm_input = true}",
     "the largest item has 100 tokens, more than max_num_batched_tokens = 90, .* vLLM refuses to start")])
def test_what_cannot_be_served_is_refused(engine, message, tmp_path):
    with pytest.raises(InputErrors, match=message):
        run(tmp_path, ["a.img:100/:10"], engine)


def test_an_encoder_without_images_is_refused(tmp_path):
    with pytest.raises(InputErrors, match=r"engine.encoder: expected none: no prompt of this workload has an image"):
        run(tmp_path, ["a:100/:10"])


def test_drawn_images_come_again(tmp_path):
    images = {"count": {"distribution": "constant", "tokens": 2}, "rule": "tokens_per_image", "tokens_per_image": 50}
    own, shared = (run(tmp_path, [f"{i}:40/:10" for i in range(20)], overrides={
        "workload.images": images | more}).summary["encoder"] for more in ({}, {"distinct": 3}))

    assert own == {"item_tokens": 2000, "encoded_tokens": 2000}
    assert shared == {"item_tokens": 2000, "encoded_tokens": 150}
