"""Images and videos as a vision tower takes them: patches, and tokens of the prompt, by the rule of its family.

Sources: huggingface/transformers 5.24, models/<family>/image_processing_<family>.py, video_processing_<family>.py and
processing_<family>.py; smallest and largest areas: preprocessor_config.json and video_preprocessor_config.json of the
published models (Qwen2-VL, Qwen3-VL, Kimi-K2.5), where they differ from the classes' defaults. vLLM 0.33.0 counts by
the same rules, vllm/model_executor/models/<family>.py.
"""
import math
from collections.abc import Callable
from typing import NamedTuple

from simulator.domain.towers import Kind, Tower, View

MOST_ELONGATED = 200            # longer side to shorter one: Qwen's processors refuse more
MOST_TILES = 16                 # of an image, Llama 4
FRAMES = (4, 768)               # fewest and most frames of a video, Qwen and MiniMax
FRAMES_PER_S = 2.0              # taken from a video unless the family or the user says otherwise
FEWEST_TOKENS = 70              # of a frame, Gemma 4


class Encoded(NamedTuple):
    """An image or a video behind its tower.

    tokens : places in the prompt, with the separators inside. views : patches that the tower computes.
    """

    tokens: int
    views: tuple[View, ...]


class Limits(NamedTuple):
    """Bounds of the area of an image, in pixels; None: those of the family."""

    min_pixels: int | None = None
    max_pixels: int | None = None

    def within(self, least: int, most: int) -> tuple[int, int]:
        """Return the bounds, given those of the family."""
        return (least if self.min_pixels is None else self.min_pixels,
                most if self.max_pixels is None else self.max_pixels)


NO_LIMITS = Limits()


class Video(NamedTuple):
    """A video.

    seconds : length. height, width : of a frame, in pixels. frames_per_s : that are sampled; None: as the family does.
    num_frames : that are sampled, regardless of the length; None: by frames_per_s.
    """

    seconds: float
    height: int
    width: int
    frames_per_s: float | None = None
    num_frames: int | None = None

    def frames(self, bounds: tuple[int, float], usual: float = FRAMES_PER_S) -> int:
        """Return the number of frames, between two bounds."""
        if self.num_frames is not None:
            return self.num_frames
        count = int(self.seconds * (self.frames_per_s or usual))
        return int(min(max(count, bounds[0]), bounds[1]))


def image(tower: Tower, height: int, width: int, limits: Limits = NO_LIMITS) -> Encoded:
    """Return an image as the tower encodes it.

    Raises
    ------
    ValueError
        The image has sides that the family refuses.
    """
    return IMAGES[tower.kind](tower, height, width, limits)


def video(tower: Tower, given: Video, limits: Limits = NO_LIMITS) -> Encoded:
    """Return a video as the tower encodes it.

    Raises
    ------
    ValueError
        The family takes no videos, or has no known rule for them.
    """
    rule = VIDEOS.get(tower.kind)
    if rule is None:
        raise ValueError(f"models with a tower of kind {tower.kind} take no videos, or by an unknown rule; those of "
                         f"{', '.join(VIDEOS)} do")
    return rule(tower, given, limits)


def resized(height: int, width: int, factor: int, bounds: tuple[int, int], frames: tuple[int, int] = (1, 1),
            ) -> tuple[int, int]:
    """Return rows and columns of squares that an image is resized to.

    Both sides become whole squares of `factor` pixels, halves to even, and the area is brought between two bounds.

    bounds : smallest and largest area in pixels. frames : of a video with a bounded volume: as they are,
        and rounded.
    """
    if max(height, width) / min(height, width) > MOST_ELONGATED:
        raise ValueError(f"an image of {height} x {width}: one side is more than {MOST_ELONGATED} times the other")
    exact, rounded = frames
    rows, columns = (round(side / factor) for side in (height, width))
    if rounded * rows * columns * factor ** 2 > bounds[1]:
        by = math.sqrt(exact * height * width / bounds[1])
        rows, columns = (max(math.floor(side / by / factor), 1) for side in (height, width))
    elif rounded * rows * columns * factor ** 2 < bounds[0]:
        by = math.sqrt(bounds[0] / (exact * height * width))
        rows, columns = (math.ceil(side * by / factor) for side in (height, width))
    return max(rows, 1), max(columns, 1)


def _merged(tower: Tower, rows: int, columns: int, groups: int = 1) -> Encoded:
    """Return squares of merged patches, `groups` times."""
    return Encoded(rows * columns * groups, (View(rows * columns * tower.merge_size ** 2, groups),))


def _side(tower: Tower) -> int:
    return tower.patch_size * tower.merge_size


def _qwen2_image(tower, height, width, limits):
    return _merged(tower, *resized(height, width, _side(tower), limits.within(3136, 12_845_056)))


def _qwen2_video(tower, given, limits):
    frames = given.frames((FRAMES[0], FRAMES[1]))
    groups = max(-(-frames // tower.frames) if given.num_frames is not None else frames // tower.frames, 1)
    bounds = limits.within(3136, 12_845_056)        # a frame's, from the same preprocessor_config.json as an image's
    return _merged(tower, *resized(given.height, given.width, _side(tower), bounds), groups)


def _qwen3_image(tower, height, width, limits):
    return _merged(tower, *resized(height, width, _side(tower), limits.within(65_536, 16_777_216)))


def _qwen3_video(tower, given, limits):
    factor, frames = _side(tower), given.frames((FRAMES[0], FRAMES[1]))
    grown = max(1.0, factor / given.height, factor / given.width)       # a side below one square
    height, width = int(given.height * grown), int(given.width * grown)
    whole = max(round(frames / tower.frames), 1) * tower.frames
    grid = resized(height, width, factor, limits.within(4096, 25_165_824), (frames, whole))
    return _merged(tower, *grid, -(-frames // tower.frames))


def _minimax_image(tower, height, width, limits):
    return _merged(tower, *resized(height, width, _side(tower), limits.within(4 * 784, 451_584)))


def _minimax_video(tower, given, limits):
    # Patches of at most four pairs of frames attend to each other: vision_segment_max_frames.
    frames = given.frames(FRAMES, usual=1.0)
    rows, columns = resized(given.height, given.width, _side(tower), limits.within(4 * 784, 768 * 784))
    groups, patches = -(-frames // tower.frames), rows * columns * tower.merge_size ** 2
    segments = [View(4 * patches, groups // 4)] if groups >= 4 else []
    return Encoded(rows * columns * groups, (*segments, *([View(groups % 4 * patches)] if groups % 4 else [])))


def _padded(tower: Tower, height: int, width: int, most_patches: int) -> tuple[int, int]:
    """Return rows and columns of merged patches: reduced to a number of patches, then padded."""
    patch, factor, longest = tower.patch_size, _side(tower), 512
    patches = max(1, height // patch) * max(1, width // patch)
    by = min(1.0, math.sqrt(most_patches / patches), longest * patch / height, longest * patch / width)
    return tuple(-(-min(max(1, int(side * by)), longest * patch) // factor) for side in (height, width))


def _kimi_image(tower, height, width, limits):
    most = limits.max_pixels // tower.patch_size ** 2 if limits.max_pixels else 16_384
    return _merged(tower, *_padded(tower, height, width, most))


def _kimi_video(tower, given, limits):
    # Four frames attend to each other and are averaged.
    frames = given.frames((1, math.inf))
    most = limits.max_pixels // tower.patch_size ** 2 if limits.max_pixels else 4096
    rows, columns = _padded(tower, given.height, given.width, most)
    patches, chunks = rows * columns * tower.merge_size ** 2, -(-frames // 4)
    whole = [View(4 * patches, frames // 4)] if frames >= 4 else []
    return Encoded(rows * columns * chunks, (*whole, *([View(frames % 4 * patches)] if frames % 4 else [])))


def _gemma3_image(tower, height, width, limits):
    return Encoded(tower.image_tokens, (View((tower.image_size // tower.patch_size) ** 2),))


def _pooled(tower: Tower, height: int, width: int, most_tokens: int) -> int:
    """Return the tokens of an image that is scaled to as many as fit, its ratio kept."""
    factor, most = _side(tower), most_tokens * tower.merge_size ** 2
    by = math.sqrt(most * tower.patch_size ** 2 / (height * width))
    rows, columns = (math.floor(by * side / factor) for side in (height, width))
    if rows == 0:
        columns = min(width // height, most_tokens)
    elif columns == 0:
        rows = min(height // width, most_tokens)
    return min(max(rows, 1) * max(columns, 1), most_tokens)


def _gemma4_image(tower, height, width, limits):
    # The tower computes the largest number of patches for every image: smaller ones are padded.
    most = tower.image_tokens
    return Encoded(_pooled(tower, height, width, most), (View(most * tower.merge_size ** 2),))


def _gemma4_video(tower, given, limits):
    frames = given.frames((1, 32), usual=1.0)
    tokens = _pooled(tower, given.height, given.width, FEWEST_TOKENS)
    return Encoded(tokens * frames, (View(FEWEST_TOKENS * tower.merge_size ** 2, frames),))


def _pixtral_image(tower, height, width, limits):
    # A break ends each row of tokens but the last, the end of the image that one.
    by = max(height / tower.image_size, width / tower.image_size, 1.0)
    rows, columns = (-(-math.floor(side / by) // _side(tower)) if by > 1 else -(-side // _side(tower))
                     for side in (height, width))
    return Encoded(rows * columns + rows, (View(rows * columns * tower.merge_size ** 2),))


def _canvas(tower: Tower, height: int, width: int) -> tuple[int, int]:
    """Return rows and columns of tiles: the least enlargement, else the least reduction, then the smallest area."""
    shapes = [(rows, columns) for rows in range(1, MOST_TILES + 1) for columns in range(1, MOST_TILES // rows + 1)]
    scales = {shape: min(shape[0] * tower.image_size / height, shape[1] * tower.image_size / width)
              for shape in shapes}
    enlarging = [scale for scale in scales.values() if scale >= 1]
    chosen = min(enlarging) if enlarging else max(scales.values())
    return min((shape for shape in shapes if scales[shape] == chosen), key=math.prod)


def _llama4_image(tower, height, width, limits):
    # Several tiles come with a view of the whole; a separator ends each tile, and one begins the view.
    rows, columns = _canvas(tower, height, width)
    patches, tiles = (tower.image_size // tower.patch_size) ** 2, rows * columns
    views, separators = (tiles + 1, tiles + 1) if tiles > 1 else (1, 0)
    return Encoded(views * patches // tower.merge_size ** 2 + separators, (View(patches + 1, views),))


def _step_image(tower, height, width, limits):
    # A view of the whole, and crops of 504 pixels; separators between crops are not counted.
    if min(height, width) < 32 and max(height, width) > 4 * min(height, width):
        height = width = max(height, width)
    if max(height, width) > 3024:
        by = 3024 / max(height, width)
        height, width = int(height * by), int(width * by)
    short, long, crop = min(height, width), max(height, width), 504
    if long <= tower.image_size:
        window = short if long > 1.5 * short else 0
    else:
        window = min(short, crop) if long > 4 * short else crop
    whole, part = (View((side // tower.patch_size) ** 2) for side in (tower.image_size, crop))
    crops = math.prod(max(1, side // window + (side >= window and side % window > 0.2 * window))
                      for side in (height, width)) if window else 0
    tokens = _convolved(whole.patches) + crops * _convolved(part.patches)
    return Encoded(tokens, (whole, View(part.patches, crops)) if crops else (whole,))


def _convolved(patches: int) -> int:
    """Return the tokens behind two convolutions, each of which halves a side, rounded up."""
    side = math.isqrt(patches)
    return (((side + 1) // 2 + 1) // 2) ** 2


IMAGES: dict[Kind, Callable[..., Encoded]] = {
    "qwen2_vl": _qwen2_image, "qwen3_vl": _qwen3_image, "kimi_k25": _kimi_image, "gemma3": _gemma3_image,
    "gemma4": _gemma4_image, "pixtral": _pixtral_image, "llama4": _llama4_image, "minimax_m3": _minimax_image,
    "step3p7": _step_image}
VIDEOS: dict[Kind, Callable[..., Encoded]] = {
    "qwen2_vl": _qwen2_video, "qwen3_vl": _qwen3_video, "kimi_k25": _kimi_video, "gemma4": _gemma4_video,
    "minimax_m3": _minimax_video}
