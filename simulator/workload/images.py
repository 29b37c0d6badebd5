"""Images in prompts: their token counts, and their positions."""
import math

import numpy as np
from msgspec.structs import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.traits import Images
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, Prompts
from simulator.workload.limits import MAX_TOKENS

SIDE_PIXELS = 28                # a token is a square of 2 x 2 patches of 14 pixels
MOST_ELONGATED = 200            # longer side to shorter one


def qwen2_vl_tokens(height: int, width: int, min_pixels: int = 3136, max_pixels: int = 12_845_056) -> int:
    """Return how many tokens Qwen2-VL and its descendants use for an image.

    Both sides become multiples of 28 pixels, and the area is brought between the bounds; a token is 28 x 28 pixels.

    Raises
    ------
    ValueError
        One side is more than 200 times the other.

    Notes
    -----
    Source: huggingface/transformers, models/qwen2_vl/image_processing_qwen2_vl.py, smart_resize.
    """
    if max(height, width) / min(height, width) > MOST_ELONGATED:
        raise ValueError(f"an image of {height} x {width}: one side is more than {MOST_ELONGATED} times the other")
    rows, columns = (max(round(side / SIDE_PIXELS), 1) for side in (height, width))     # halves to the even number
    if rows * columns * SIDE_PIXELS ** 2 > max_pixels:
        factor = math.sqrt(height * width / max_pixels)
        rows, columns = (max(math.floor(side / factor / SIDE_PIXELS), 1) for side in (height, width))
    elif rows * columns * SIDE_PIXELS ** 2 < min_pixels:
        factor = math.sqrt(min_pixels / (height * width))
        rows, columns = (math.ceil(side * factor / SIDE_PIXELS) for side in (height, width))
    return rows * columns


def with_images(columns: Columns, given: Images | None, streams: RandomStreams) -> Columns:
    """Return the requests with the images of [workload.images] in their prompts.

    Each image is a token stream of its own; with `distinct`, that many images are repeated.

    Raises
    ------
    InputErrors
        The workload has images already, or sessions; a size or a prompt is out of range.
    """
    if given is None:
        return columns
    if "num_images" in columns.facts or "image_tokens" in columns.facts:
        raise InputErrors([KeyFault("workload.images: the trace says itself what images its requests have")])
    if columns.waits is not None:
        raise InputErrors([KeyFault(
            "workload.images: later turns would have to repeat the images of those before; write them into the column "
            "prompt of a trace, as name:tokens")])
    distribution = registry.load("length_distribution", given.count.distribution)(given.count.parameters)
    counts = distribution.draw(streams.generator("image_counts"), len(columns))
    owners = np.repeat(np.arange(len(columns)), counts)
    shown = np.arange(len(owners))
    if given.distinct is not None:
        shown = streams.generator("image_choices").integers(0, given.distinct, len(owners))
    tokens = _tokens(given, streams.generator("image_sizes"), given.distinct or len(owners))[shown]
    image_tokens = np.bincount(owners, weights=tokens, minlength=len(columns)).astype(np.int64)
    prompt_tokens = columns.prompt_tokens + image_tokens
    if prompt_tokens.max() > MAX_TOKENS:
        raise InputErrors([KeyFault(
            f"workload.images: make a prompt of {prompt_tokens.max()} tokens, at most {MAX_TOKENS} are possible")])
    images = _first_free(columns) + np.arange(given.distinct or len(owners))
    images = records.named_stream(images)
    return replace(columns, prompts=_inserted(columns, owners, images[shown], tokens), prompt_tokens=prompt_tokens,
                   images=images, facts=columns.facts | {"num_images": counts, "image_tokens": image_tokens})


def _tokens(given: Images, generator: np.random.Generator, count: int) -> np.ndarray:
    """Return the tokens of each image."""
    if given.rule == "tokens_per_image":
        return np.full(count, given.tokens_per_image)
    try:
        of_size = [qwen2_vl_tokens(int(height), int(width), given.min_pixels, given.max_pixels)
                   for height, width, _ in given.sizes]
    except ValueError as error:
        raise InputErrors([KeyFault(f"workload.images.sizes: {error}")]) from None
    ends = np.cumsum([weight for _, _, weight in given.sizes])
    return np.array(of_size)[np.searchsorted(ends, generator.random(count) * ends[-1], side="right")]


def _first_free(columns: Columns) -> int:
    """Return the first name that no stream has."""
    streams = np.empty(0, np.int64) if columns.prompts is None else columns.prompts.streams
    return int((streams[streams & 3 == records.named_stream(0)] >> 2).max(initial=-1)) + 1


def _inserted(columns: Columns, owners: np.ndarray, images: np.ndarray, tokens: np.ndarray) -> Prompts:
    """Return the prompts with images before the first token that is the request's own; at the end without such a token.

    Parameters
    ----------
    owners, images, tokens : (m,) for each image, its request's row (ascending), its stream, and its length.
    """
    count = len(columns)
    own = records.own_stream(np.arange(count))
    given = columns.prompts or Prompts(np.zeros(count, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    is_plain = given.num_segments == 0
    begins = np.cumsum(given.num_segments) - given.num_segments
    streams = np.insert(given.streams, begins[is_plain], own[is_plain])
    num_tokens = np.insert(given.num_tokens, begins[is_plain], columns.prompt_tokens[is_plain])
    counts = np.where(is_plain, 1, given.num_segments)
    rows = np.repeat(np.arange(count), counts)
    at = np.cumsum(counts)
    is_own = np.flatnonzero(streams == own[rows])[::-1]
    at[rows[is_own]] = is_own                                   # of several own segments the first one counts
    return Prompts(counts + np.bincount(owners, minlength=count), np.insert(streams, at[owners], images),
                   np.insert(num_tokens, at[owners], tokens))
