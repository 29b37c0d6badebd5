"""Prompts as hashed blocks: an id identifies a block of tokens and all blocks before it."""
from itertools import chain

import numpy as np

from simulator.domain import records
from simulator.workload.columns import Prompts

DENSE = 4               # integers from the smallest to the largest, for each value: up to here a table ranks them


def block_prompts(ids: list, block_size: int, prompt_tokens: np.ndarray) -> Prompts | None:
    """Return prompts with each block as a stream of its own; None: no request has ids.

    Parameters
    ----------
    ids : for each request a list of integers, or None for a prompt that is shared with no other. Blocks cover the
        prompt; the last one may be partial.
    """
    return prompts_of_codes(*coded_ids(ids), block_size, prompt_tokens)


def prompts_of_codes(counts: np.ndarray, codes: np.ndarray, block_size: int, prompt_tokens: np.ndarray
                     ) -> Prompts | None:
    """Return prompts with each block as a stream of its own, see `block_prompts`.

    counts, codes : as returned by `coded_ids`.
    """
    if not counts.any():
        return None
    num_tokens = np.full(len(codes), block_size, dtype=np.int64)
    has_blocks = counts > 0
    last = np.cumsum(counts)[has_blocks] - 1
    num_tokens[last] = (prompt_tokens - (counts - 1) * block_size)[has_blocks]
    return Prompts(counts, records.named_stream(codes), num_tokens)


def coded_ids(ids: list) -> tuple[np.ndarray, np.ndarray]:
    """Return each request's number of ids, and all ids as codes from 0, int64."""
    counts = np.array([len(each or ()) for each in ids], dtype=np.int64)
    flat = list(chain.from_iterable(filter(None, ids)))
    try:
        values = np.fromiter(flat, np.int64, len(flat))
    except OverflowError:                               # hashes of 64 bits, or more
        table = {}
        return counts, np.array([table.setdefault(each, len(table)) for each in flat], dtype=np.int64)
    return counts, ranks(values)


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value among the distinct values, int64."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low > DENSE * len(values):
        return np.unique(values, return_inverse=True)[1].astype(np.int64)
    is_present = np.zeros(high - low + 1, bool)
    places = values - low
    is_present[places] = True
    return (np.cumsum(is_present) - 1)[places]


def runs(counts: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join consecutive blocks, so that long prompts have few segments.

    Ids form a tree, as each identifies all blocks before it. A block continues the stream of its predecessor; if
    several blocks have one predecessor, only one continues its stream, and the others begin streams. If an id has
    several predecessors, there is no tree; then each block is a stream of its own.

    Parameters
    ----------
    counts : int64 (n,), blocks of each prompt.
    codes : int64 (m,), of all prompts, from 0.

    Returns
    -------
    num_segments, streams, num_blocks
        int64 (n,), (s,), (s,): number of segments of each prompt; for each segment its stream, the code of its first
        block, and its length.
    """
    begins = (np.cumsum(counts) - counts)[counts > 0]
    before = np.empty_like(codes)
    before[1:] = codes[:-1]
    before[begins] = -1
    parent = np.full(codes.max(initial=-1) + 1, -1)
    parent[codes] = before
    starts = np.ones(len(codes), bool)
    if np.array_equal(parent[codes], before):
        children = np.flatnonzero(parent >= 0)
        heir = np.full(len(parent), -1)
        heir[parent[children[::-1]]] = children[::-1]
        goes_on = np.zeros(len(parent), bool)
        goes_on[children] = heir[parent[children]] == children
        starts = ~goes_on[codes]
    at = np.flatnonzero(starts)
    owner = np.repeat(np.arange(len(counts)), counts)
    return np.bincount(owner[at], minlength=len(counts)), codes[at], np.diff(np.append(at, len(codes)))


def run_prompts(ids: list, block_size: int, prompt_tokens: np.ndarray, codes_from: int = 0) -> tuple[Prompts, int]:
    """Return prompts of joined blocks, and the first code above their streams' codes.

    Ids may leave out a last partial block, or more: the tokens that they do not cover are the request's own.

    Parameters
    ----------
    codes_from : streams have codes from here on; rows count from 0.
    """
    counts, codes = coded_ids(ids)
    num_segments, streams, num_blocks = runs(counts, codes)
    own = np.maximum(prompt_tokens - counts * block_size, 0)
    num_tokens = num_blocks * block_size
    ends = np.cumsum(num_segments)
    has_blocks = num_segments > 0
    num_tokens[ends[has_blocks] - 1] += np.minimum(prompt_tokens - counts * block_size, 0)[has_blocks]
    has_own = (own > 0) & has_blocks        # a prompt with only own tokens needs no segments
    streams = np.insert(records.named_stream(streams + codes_from), ends[has_own],
                        records.own_stream(np.flatnonzero(has_own)))
    num_tokens = np.insert(num_tokens, ends[has_own], own[has_own])
    return Prompts(num_segments + has_own, streams, num_tokens), codes_from + len(codes)
