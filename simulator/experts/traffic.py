"""Bytes that a rank sends to experts and gets back, in one layer, by all-to-all backend.

T tokens on each of g ranks, k experts a token, h elements of hidden state, b bytes each:

- allgather_reducescatter: every token goes to every rank, (g - 1) / g x T g h b either way, for any k; ring bound.
- deepep_low_latency: a copy for each expert; dispatch T k (h + 4 h / 128), fp8 with a float32 scale per 128 elements,
  combine T k 2 h, bfloat16.
- deepep_high_throughput: a copy for each destination, a rank of one domain or else a node, of which k experts reach
  n (1 - (1 - 1/n)^k) of n where all are chosen alike; formats as above.

Source of the formats: deepseek-ai/DeepEP, docs/legacy.md; the bandwidths published there are these bytes by the times
published beside them. That normal kernels count a copy a destination is how its tests count; that destinations are
chosen alike is ours (DeepSeek limits a token to 4 groups).
"""
from typing import NamedTuple

GATHER, HIGH_THROUGHPUT, LOW_LATENCY = (
    "allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency")
FP8_BYTES = 1 + 4 / 128                 # of an element that is dispatched, its share of scales included
BF16_BYTES = 2                          # of an element that is combined


class Site(NamedTuple):
    """Parameters of a model and its layout that decide the bytes."""

    hidden: int
    chosen: int                         # experts a token
    ranks: int
    num_domains: int = 1                # scale-up domains over which the ranks are spread
    element_bytes: float = 2.0          # of activations


def sent_bytes(backend: str, what: str, tokens, site: Site):
    """Return the bytes of `tokens` of each rank, a number or an array.

    backend : one of the names above. what : "dispatch" or "combine".
    """
    if backend == GATHER:
        return (site.ranks - 1) / site.ranks * (tokens * site.ranks) * site.hidden * site.element_bytes
    copies = site.chosen
    if backend == HIGH_THROUGHPUT:
        copies = distinct(site.num_domains if site.num_domains > 1 else site.ranks, site.chosen)
    return tokens * copies * site.hidden * (FP8_BYTES if what == "dispatch" else BF16_BYTES)


def distinct(destinations: int, chosen: int) -> float:
    """Return the expected number of distinct destinations of `chosen` experts."""
    return destinations * (1 - (1 - 1 / destinations) ** chosen)


def moved_expert_bytes(hidden: int, intermediate: int, weight_bytes: float, num_matrices: int = 3) -> float:
    """Return the bytes of one expert of a layer: 3 h h_moe b where it is gated."""
    return num_matrices * hidden * intermediate * weight_bytes
