"""Experts of ranks that get the tokens of an exchange alone, from tables in which a rank holds the tokens of all.

Rows of `moe` over e ranks were measured as vLLM runs experts behind a gather: each rank has all T tokens, computes the
pairs of its own experts, and activates and sums the rows of all pairs. Even loads show both parts: t(e) = a + b / e.
On H200, 16,384 tokens of 2048 x 512, 8 of 256 experts in bfloat16, take 1, 0.674, 0.512, 0.430, 0.389 and 0.368 of one
rank's time over 1, 2, 4, ... 32 ranks, so that a is 0.347 to 0.350; over tokens a is a line, launches and 39 ns a
token. Behind DeepEP or NVLink's dispatch a rank gets the tokens that chose one of its experts, 1 - (1 - 1/e)^k of all.
The slope of a times the other tokens is left out, but one rank's time by e stays.

Per pair and element, hidden size + intermediate size, the slope is nearly one number for a kernel: on H200, of mixtures
with 4 experts a token or more over 32 ranks, 8 to 11 bytes at memory's bandwidth in bfloat16, 0.5 to 2 in fp8_block.
Where even loads are not there, or take longer than skewed ones, since they give the same experts every token
(expert_shares.py), the median of the other mixtures over as many ranks is taken.
"""
from collections.abc import Mapping

import numpy as np

from simulator.experts.traffic import distinct
from simulator.latency.operators.curves import Curve

LEAST_TOKENS = 1024             # below, ranks differ in the experts that tokens need
MOST = 1.1                      # of skewed loads' time, for even loads

Curves = Mapping[tuple, Curve]


class ForeignTokens:
    """Times that a rank spends on tokens of which it computes nothing.

    Parameters
    ----------
    even, skewed : curves of even and of skewed loads, by (hidden, intermediate, chosen, experts, TP, EP).
    """

    def __init__(self, even: Curves, skewed: Curves):
        self._even = even
        self._slopes = {site: slope for site in even if (slope := self._measured(site, skewed)) is not None}

    def token_ns(self, site: tuple) -> float | None:
        """Return the time of one token; None: not known.

        Neither this mixture nor another over as many ranks was measured with even loads then.
        """
        if site in self._slopes:
            return self._slopes[site]
        others = [slope / _elements(other) for other, slope in self._slopes.items() if other[4:] == site[4:]]
        return float(np.median(others)) * _elements(site) if others else None

    def without(self, curve: Curve, site: tuple) -> Curve:
        """Return a curve without the time of tokens that do not reach a rank."""
        slope = self.token_ns(site) if site[5] > 1 else None
        if not slope:
            return curve
        ns = curve.ns - slope * (1 - distinct(site[5], site[2]) / site[5]) * curve.sizes
        alone = self._even.get((*site[:5], 1.0), curve)
        return Curve(curve.sizes, np.maximum(ns, np.minimum(curve.ns, np.interp(curve.sizes, *alone) / site[5])))

    def _measured(self, site: tuple, skewed: Curves) -> float | None:
        ranks, alone, spread = site[5], self._even.get((*site[:5], 1.0)), self._even[site]
        if ranks == 1 or alone is None or not _is_even(spread, skewed.get(site)):
            return None
        tokens = np.intersect1d(alone.sizes, spread.sizes)
        tokens = tokens[tokens >= LEAST_TOKENS]
        if len(tokens) < 2:
            return None
        ends = tokens[[0, -1]]
        first, last = (ranks * np.interp(ends, *spread) - np.interp(ends, *alone)) / (ranks - 1)
        return max(float(last - first) / float(ends[1] - ends[0]), 0.0)


def _is_even(even: Curve, skewed: Curve | None) -> bool:
    return skewed is None or even.ns[-1] <= MOST * np.interp(even.sizes[-1], *skewed)


def _elements(site: tuple) -> float:
    """Return the elements of a token's rows beside the weights."""
    return site[2] * (site[0] + site[1])
