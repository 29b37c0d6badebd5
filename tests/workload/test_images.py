"""Images in prompts."""
import numpy as np
import pytest

from simulator.core.random_streams import RandomStreams
from simulator.domain.records import named_stream, own_stream
from simulator.domain.traits import CountChoice, Images
from simulator.errors import InputErrors
from simulator.study.shared_prefixes import shared_tokens
from simulator.workload.build import build_workload
from simulator.workload.columns import Columns, Prompts, Waits, in_arrival_order
from simulator.workload.drawing.lengths import ConstantParameters, UniformParameters
from simulator.workload.images import qwen2_vl_tokens, with_images


def choice(distribution="constant", **keys):
    parameters = {"constant": ConstantParameters, "uniform": UniformParameters}[distribution]
    return CountChoice(distribution=distribution, parameters=parameters(**keys))


def requests(*prompt_tokens, **columns):
    count = len(prompt_tokens)
    return Columns(np.arange(count), np.array(prompt_tokens), np.ones(count, np.int64), **columns)


def added(columns, images, seed=0):
    return with_images(columns, images, RandomStreams(seed))


def prompts(columns):
    """Return the segments of each prompt."""
    ends = np.cumsum(columns.prompts.num_segments)
    pieces = list(zip(columns.prompts.streams.tolist(), columns.prompts.num_tokens.tolist(), strict=True))
    return [pieces[end - count:end] for end, count in zip(ends, columns.prompts.num_segments, strict=True)]


@pytest.mark.parametrize(("height", "width", "tokens"), [
    (256, 256, 81), (720, 1280, 1196), (1080, 1920, 2691), (2160, 3840, 10549), (6000, 6000, 16384)])
def test_m1_tokens_of_an_image(height, width, tokens):
    assert qwen2_vl_tokens(height, width) == qwen2_vl_tokens(width, height) == tokens


@pytest.mark.parametrize(("height", "width", "tokens"), [
    (14, 100, 4),       # 14 / 28 = 0.5 rounds to the even 0, at least 1 row of 28; 1 x 4 squares are 3136 pixels
    (42, 280, 20),      # 1.5 rounds to the even 2
    (70, 280, 20),      # 2.5 rounds to the even 2
    (28, 28, 4),        # enlarged by sqrt(3136 / 784) = 2
    (10, 10, 4)])       # by 5.6, to 56 x 56
def test_sides_are_rounded_half_to_even_and_small_images_enlarged(height, width, tokens):
    assert qwen2_vl_tokens(height, width) == tokens


def test_bounds_of_pixels_are_those_given():
    # 1,003,520 pixels are 1280 tokens: sqrt(1080 x 1920 / 1,003,520) = 1.437; 1080 -> 26, 1920 -> 47 squares
    assert qwen2_vl_tokens(1080, 1920, max_pixels=1_003_520) == 26 * 47


def test_strips_are_refused():
    assert qwen2_vl_tokens(28, 28 * 200) == 200
    with pytest.raises(InputErrors, match=r"workload.images.sizes: an image of 28 x 5601: one side is more than 200"):
        added(requests(5), Images(count=choice(tokens=1), sizes=((28.0, 5601.0, 1.0),)))


def test_an_image_is_a_stream_of_its_own_between_what_is_shared_and_the_text():
    # row 0: 5 own tokens; row 1: system prompt 3, own 4; row 2: text of row 0, nothing of its own
    system = named_stream(8)
    given = Prompts(np.array([0, 2, 1]), np.array([system, own_stream(1), own_stream(0)]), np.array([3, 4, 5]))

    columns = added(requests(5, 7, 5, prompts=given), Images(
        count=choice(tokens=2), rule="tokens_per_image", tokens_per_image=10))

    images = [named_stream(9 + i) for i in range(6)]            # 8 is the last name that is taken
    assert prompts(columns) == [
        [(images[0], 10), (images[1], 10), (own_stream(0), 5)],
        [(system, 3), (images[2], 10), (images[3], 10), (own_stream(1), 4)],
        [(own_stream(0), 5), (images[4], 10), (images[5], 10)]]
    assert columns.prompt_tokens.tolist() == [25, 27, 25]
    assert columns.facts["num_images"].tolist() == [2, 2, 2]
    assert columns.facts["image_tokens"].tolist() == [20, 20, 20]


def test_only_what_stands_before_the_first_image_is_shared():
    system, count = named_stream(0), 10
    given = Prompts(np.full(count, 2), np.ravel([(system, own_stream(row)) for row in range(count)]),
                    np.tile([32, 8], count))

    workload = build_workload(in_arrival_order(added(requests(*[40] * count, prompts=given), Images(
        count=choice("uniform", min=0, max=2), sizes=((256.0, 256.0, 1.0),)))))

    assert shared_tokens(workload).tolist() == [0] + [32] * (count - 1)
    lengths = 40 + 81 * workload.facts["num_images"]
    assert workload.requests["prompt_tokens"].tolist() == lengths.tolist()
    assert set(workload.facts["num_images"].tolist()) == {0, 1, 2}


def test_sizes_are_as_likely_as_their_weights():
    columns = added(requests(*[1] * 20_000), Images(count=choice(tokens=1), sizes=(
        (256.0, 256.0, 1.0), (720.0, 1280.0, 3.0), (28.0, 28.0, 0.0))))

    tokens, counts = np.unique(columns.facts["image_tokens"], return_counts=True)
    assert tokens.tolist() == [81, 1196]
    assert counts[0] / 20_000 == pytest.approx(0.25, abs=0.013)         # 4 deviations


NONE = np.empty(0, np.int64)


@pytest.mark.parametrize(("columns", "message"), [
    ({"facts": {"num_images": np.array([1])}}, "the trace says itself what images its requests have"),
    ({"waits": Waits(np.array([0]), NONE, NONE, NONE, np.empty(0, bool))}, "later turns would have to repeat")])
def test_images_that_contradict_the_workload_are_refused(columns, message):
    with pytest.raises(InputErrors, match=message):
        added(requests(5, **columns), Images(count=choice(tokens=1), sizes=((28.0, 28.0, 1.0),)))


@pytest.mark.parametrize(("keys", "message"), [
    ({}, 'rule = "qwen2_vl" needs sizes'),
    ({"rule": "tokens_per_image"}, 'rule = "tokens_per_image" needs tokens_per_image'),
    ({"sizes": ((5.0, 5.0),)}, r"expected \[height, width, weight\], whole pixels, found"),
    ({"sizes": ((0.0, 5.0, 1.0),)}, r"expected \[height, width, weight\], whole pixels, found"),
    ({"sizes": ((5.0, 5.0, 0.0),)}, "a positive, finite sum"),
    ({"sizes": ((5.0, 5.0, 1.0),), "min_pixels": 9, "max_pixels": 8}, "min_pixels 9 is above max_pixels 8"),
    ({"sizes": ((5.0, 5.0, 1.0),), "tokens_per_image": 3}, 'rule = "qwen2_vl" does not read tokens_per_image')])
def test_keys_that_contradict_each_other_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        Images(count=choice(tokens=1), **keys)
