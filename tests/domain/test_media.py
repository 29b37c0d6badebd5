"""Images and videos become patches and tokens by each family's rule; examples worked out by hand."""
import pytest

from simulator.domain.facts import load_model
from simulator.domain.media import Limits, Video, image, video
from simulator.domain.towers import Tower, View


def tower(kind, patch, merge, frames=1, **more):
    return Tower(kind=kind, num_layers=2, width=8, intermediate_size=32, num_heads=2, patch_size=patch,
                 merge_size=merge, frames=frames, **more)


QWEN2 = tower("qwen2_vl", 14, 2, 2)
QWEN3 = tower("qwen3_vl", 16, 2, 2)
KIMI = tower("kimi_k25", 14, 2)
GEMMA3 = tower("gemma3", 14, 4, image_size=896, image_tokens=256)
GEMMA4 = tower("gemma4", 16, 3, image_tokens=280)
PIXTRAL = tower("pixtral", 14, 2, image_size=1540)
LLAMA4 = tower("llama4", 14, 2, image_size=336)
MINIMAX = tower("minimax_m3", 14, 2, 2)
STEP = tower("step3p7", 14, 4, image_size=728)


@pytest.mark.parametrize(("of", "height", "width", "tokens", "views"), [
    (QWEN2, 280, 560, 10 * 20, [View(20 * 40)]),
    (QWEN2, 300, 300, 11 * 11, [View(22 * 22)]),              # 300/28 = 10.7
    (QWEN2, 10, 200, 1 * 9, [View(36)]),                       # below 56 x 56: x 1.25, 12.5 and 250, rounded up
    (QWEN3, 1080, 1920, 34 * 60, [View(68 * 120)]),            # 33.75 and 60 squares of 32
    (QWEN3, 128, 128, 8 * 8, [View(256)]),                     # 65,536 pixels at least
    (KIMI, 1080, 1920, 39 * 69, [View(78 * 138)]),             # padded: 38.6 and 68.6 squares of 28
    (KIMI, 4000, 4000, 65 * 65, [View(130 * 130)]),            # x 128/285, of 16,384 patches: 1,796, padded
    (GEMMA3, 1, 5000, 256, [View(4096)]),
    (GEMMA4, 800, 800, 16 * 16, [View(2520)]),                 # 803 pixels hold 280 x 9 patches: 16 squares
    (GEMMA4, 100, 1600, 4 * 66, [View(2520)]),                 # x 2.008: 200.8 and 3,212
    (PIXTRAL, 1540, 1540, 55 * 55 + 55, [View(110 * 110)]),
    (PIXTRAL, 100, 30, 4 * 2 + 4, [View(32)]),
    (PIXTRAL, 3080, 1000, 55 * 18 + 55, [View(110 * 36)]),     # halved: 1,540 x 500
    (LLAMA4, 336, 336, 144, [View(577)]),
    (LLAMA4, 300, 600, 3 * 144 + 3, [View(577, 3)]),           # 1 x 2 tiles and the whole, three separators
    (MINIMAX, 672, 672, 24 * 24, [View(48 * 48)]),
    (MINIMAX, 2000, 2000, 24 * 24, [View(48 * 48)]),           # at most 451,584 pixels
    (STEP, 728, 728, 169, [View(2704)]),                       # 52 patches a side, halved twice
    (STEP, 1008, 1512, 169 + 6 * 81, [View(2704), View(1296, 6)]),
])
def test_images_become_patches_and_tokens(of, height, width, tokens, views):
    assert image(of, height, width) == (tokens, tuple(views))


@pytest.mark.parametrize(("of", "given", "tokens", "views"), [
    (QWEN2, Video(10.0, 280, 560), 10 * 200, [View(800, 10)]),         # 20 frames in pairs
    (QWEN2, Video(0.5, 280, 560), 2 * 200, [View(800, 2)]),            # no fewer than four frames
    (QWEN2, Video(10.0, 280, 560, frames_per_s=1.0), 5 * 200, [View(800, 5)]),
    (QWEN2, Video(10.0, 280, 560, num_frames=7), 4 * 200, [View(800, 4)]),
    (QWEN3, Video(10.0, 320, 640), 10 * 200, [View(800, 10)]),
    # 1,200 seconds reach 768 frames; 25,165,824 pixels of all are 32,768 of each, 4 rows and 8 columns
    (QWEN3, Video(1200.0, 720, 1280), 384 * 4 * 7, [View(4 * 28, 384)]),
    (KIMI, Video(5.0, 280, 560), 3 * 200, [View(4 * 800, 2), View(2 * 800)]),       # 10 frames: 4, 4 and 2
    (GEMMA4, Video(10.0, 480, 480), 10 * 64, [View(630, 10)]),
    (GEMMA4, Video(100.0, 480, 480), 32 * 64, [View(630, 32)]),
    (MINIMAX, Video(10.0, 280, 560), 5 * 200, [View(4 * 800, 1), View(800)]),
])
def test_videos_become_patches_and_tokens(of, given, tokens, views):
    assert video(of, given) == (tokens, tuple(views))


@pytest.mark.parametrize("of", [GEMMA3, PIXTRAL, LLAMA4, STEP])
def test_families_without_videos_refuse_them(of):
    with pytest.raises(ValueError, match=f"{of.kind} take no videos"):
        video(of, Video(1.0, 100, 100))


def test_areas_can_be_bounded():
    assert image(QWEN3, 1024, 1024).tokens == 32 * 32
    assert image(QWEN3, 1024, 1024, Limits(max_pixels=256 * 256)).tokens == 8 * 8
    assert image(KIMI, 1120, 1120, Limits(max_pixels=560 * 560)).tokens == 20 * 20


def test_elongated_images_are_refused():
    with pytest.raises(ValueError, match="one side is more than 200 times the other"):
        image(QWEN3, 1, 300)


def test_operations_of_a_tower_are_those_of_its_products_and_its_pairs():
    of = load_model("qwen3.5-27b").vision
    patches, tokens = 4096, 1024
    block = 4 * 1152**2 + 2 * 1152 * 4304
    products = 2 * patches * (27 * block + 3 * 2 * 16 * 16 * 1152) + 2 * tokens * (4608 * 4608 + 4608 * 5120)

    assert of.flops((View(patches),), tokens) == products + 27 * 4 * patches**2 * 1152
    # the same patches in four images attend to a quarter of the pairs
    assert of.flops((View(patches // 4, 4),), tokens) == products + 27 * patches**2 * 1152


def test_windows_bound_the_pairs_of_most_layers():
    of = Tower(kind="qwen2_vl", num_layers=32, width=1280, intermediate_size=3420, num_heads=16, gated=True,
               patch_size=14, merge_size=2, frames=2, window=64, num_full_layers=4)
    products = 2 * 1000 * (32 * (4 * 1280**2 + 3 * 1280 * 3420) + 1176 * 1280)

    assert of.flops((View(1000),), 250) == products + 4 * 1280 * (4 * 1000**2 + 28 * 1000 * 64)
