"""Images in prompts: their token counts, and their positions."""
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from simulator import registry
from simulator.core.random_streams import RandomStreams
from simulator.domain import records
from simulator.domain.items import WORK
from simulator.domain.media import QWEN2_PIXELS, Encoded, Limits, image, resized
from simulator.domain.towers import Tower, amounts
from simulator.domain.traits import Images
from simulator.errors import InputErrors, KeyFault
from simulator.workload.columns import Columns, Prompts
from simulator.workload.limits import MAX_TOKENS

SIDE_PIXELS = 28                # a token is a square of 2 x 2 patches of 14 pixels


class Drawn(NamedTuple):
    """Items of prompts.

    owners : row of each item's request, ascending. shown : number of its content. tokens : of each content.
    work : structured array, `domain.items.WORK`, of each content; None: it is not known.
    """

    owners: np.ndarray
    shown: np.ndarray
    tokens: np.ndarray
    work: np.ndarray | None


def qwen2_vl_tokens(height: int, width: int, min_pixels: int | None = None, max_pixels: int | None = None) -> int:
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
    return math.prod(resized(height, width, SIDE_PIXELS, Limits(min_pixels, max_pixels).within(*QWEN2_PIXELS)))


def with_images(columns: Columns, given: Images | None, streams: RandomStreams,
                tower_for: Callable[[str], Tower] | None = None) -> Columns:
    """Return the requests with the images of [workload.images] in their prompts.

    Each image is a token stream of its own; with `distinct`, that many images are repeated.

    tower_for : returns the vision tower of the model; its argument is the key that needs it.

    Raises
    ------
    InputErrors
        The workload has images already, or sessions; a size or a prompt is out of range; the model has no tower.
    """
    if given is None:
        return columns
    if "num_images" in columns.facts or "image_tokens" in columns.facts:
        raise InputErrors([KeyFault("workload.images: the trace says itself what images its requests have")])
    refuse_turns(columns, "images")
    drawn = draw(columns, given, streams, "image", lambda generator, count: _sizes(given, generator, count, tower_for))
    return added(columns, drawn, "images")


def draw(columns: Columns, given, streams: RandomStreams, name: str, sizes: Callable) -> Drawn:
    """Draw the number of items of each request, and their contents.

    given : with `count` and `distinct`. name : of an item, in names of random streams. sizes : called with a generator
    and a number of contents, returns their tokens and work.
    """
    distribution = registry.load("length_distribution", given.count.distribution)(given.count.parameters)
    counts = distribution.draw(streams.generator(f"{name}_counts"), len(columns))
    owners = np.repeat(np.arange(len(columns)), counts)
    shown = np.arange(len(owners))
    if given.distinct is not None:
        shown = streams.generator(f"{name}_choices").integers(0, given.distinct, len(owners))
    tokens, work = sizes(streams.generator(f"{name}_sizes"), given.distinct or len(owners))
    return Drawn(owners, shown, tokens, work)


def refuse_turns(columns: Columns, key: str) -> None:
    """Refuse items in the prompts of requests that wait for others."""
    if columns.waits is not None:
        raise InputErrors([KeyFault(
            f"workload.{key}: later turns would have to repeat the {key} of those before; write them into the column "
            "prompt of a trace, as name:tokens")])


def added(columns: Columns, drawn: Drawn, key: str) -> Columns:
    """Return the requests with items in their prompts, behind those that they have.

    Raises
    ------
    InputErrors
        A prompt is too long.
    """
    owners, tokens, count = drawn.owners, drawn.tokens[drawn.shown], len(columns)
    item_tokens = np.bincount(owners, weights=tokens, minlength=count).astype(np.int64)
    prompt_tokens = columns.prompt_tokens + item_tokens
    if prompt_tokens.max() > MAX_TOKENS:
        raise InputErrors([KeyFault(
            f"workload.{key}: make a prompt of {prompt_tokens.max()} tokens, at most {MAX_TOKENS} are possible")])
    items = records.named_stream(_first_free(columns) + np.arange(len(drawn.tokens)))
    facts = {"num_images": np.bincount(owners, minlength=count), "image_tokens": item_tokens}
    facts = {name: columns.facts.get(name, 0) + values for name, values in facts.items()}
    before = np.empty(0, np.int64) if columns.images is None else columns.images
    work = None
    if drawn.work is not None or columns.image_work is not None:
        parts = ((before, columns.image_work), (items, drawn.work))
        work = np.concatenate([np.zeros(len(each), WORK) if known is None else known for each, known in parts])
    return replace(columns, prompts=_inserted(columns, owners, items[drawn.shown], tokens),
                   prompt_tokens=prompt_tokens, images=np.concatenate([before, items]), image_work=work,
                   facts=columns.facts | facts)


def _sizes(given: Images, generator: np.random.Generator, count: int,
           tower_for: Callable[[str], Tower] | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the tokens and the work of images."""
    if given.rule == "tokens_per_image":
        return np.full(count, given.tokens_per_image), None
    weights = [weight for _, _, weight in given.sizes]
    try:
        if given.rule == "qwen2_vl":
            tokens = [qwen2_vl_tokens(int(height), int(width), given.min_pixels, given.max_pixels)
                      for height, width, _ in given.sizes]
            return np.array(tokens)[chosen(weights, generator, count)], None
        tower, limits = tower_for("workload.images.rule"), Limits(given.min_pixels, given.max_pixels)
        encoded = [image(tower, int(height), int(width), limits) for height, width, _ in given.sizes]
    except ValueError as error:
        raise InputErrors([KeyFault(f"workload.images.sizes: {error}")]) from None
    return amounts_of(encoded, chosen(weights, generator, count))


def chosen(weights: list[float], generator: np.random.Generator, count: int) -> np.ndarray:
    """Return rows drawn by their weights, int64 (count,)."""
    ends = np.cumsum(weights)
    return np.searchsorted(ends, generator.random(count) * ends[-1], side="right")


def amounts_of(encoded: list[Encoded], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and work of items, each one of `encoded`."""
    work = np.array([amounts(each.views) for each in encoded], WORK)
    return np.array([each.tokens for each in encoded])[rows], work[rows]


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
