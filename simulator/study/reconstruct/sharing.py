"""Prefixes that requests share, so that a cache without a limit finds the measured share of prompt tokens."""
from typing import NamedTuple

import numpy as np

LEAST_SHARE = 0.005             # hits below it are none
HALVINGS = 50


class Sharing(NamedTuple):
    """A way in which prompts share their beginnings.

    groups : texts that begin prompts. members : share of the requests with such a text. hit_share : share of the
    prompt tokens that the cache finds.
    """

    groups: int
    members: float
    hit_share: float


def drawn_heads(generator: np.random.Generator, prompts: np.ndarray, block: int,
                sharing: Sharing) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each request, and the shared tokens of its prompt.

    block : tokens of a block of the cache: it finds whole blocks, and never the last token.
    """
    groups = generator.integers(0, max(sharing.groups, 1), len(prompts))
    is_member = generator.random(len(prompts)) < sharing.members
    if sharing.hit_share < LEAST_SHARE:
        return groups, np.zeros(len(prompts), np.int64)
    is_later = is_member.copy()
    is_later[np.flatnonzero(is_member)[np.unique(groups[is_member], return_index=True)[1]]] = False
    target = sharing.hit_share * prompts.sum()
    low, high = 0.0, float(prompts.max(initial=1))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _hits(prompts[is_later], middle, block) < target:
            low = middle
        else:
            high = middle
    return groups, np.where(is_member, np.minimum(prompts - 1, round(high)).clip(0), 0)


def _hits(prompts: np.ndarray, head: float, block: int) -> int:
    return int((np.minimum(prompts - 1, round(head)) // block * block).sum())


def prompt_texts(prompts: np.ndarray, groups: np.ndarray, heads: np.ndarray) -> list[str]:
    """Return prompts as segments of a native trace: of a group, then of their own."""
    return [f"head{group}:{head}/:{prompt - head}" if head else f":{prompt}"
            for prompt, group, head in zip(prompts.tolist(), groups.tolist(), heads.tolist(), strict=True)]
