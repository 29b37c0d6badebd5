"""Work of the busiest rank over the mean, and the number of its experts that are needed.

With shares L_1 >= L_2 >= ... of g ranks (their sum is 1), and N choices, tokens x experts a token, each falling to rank
r with chance L_r, the busiest rank is expected to have

    max over m of  mean of L_1 .. L_m  +  z_m sqrt(mean of L_i (1 - L_i) / N, i <= m)

of the work, z_m = Phi^-1((m - 3/8) / (m + 1/4)), the expected largest of m standard normals (Blom 1958): the m hottest
ranks contend, for the m that says most. Imbalance is that times g, at most g. m = 1 is the largest share without
chance; with equal shares m = g is the noise of a multinomial alone. Proposed here: there is no published check; of
drawn multinomials it is within 5 % from 16 choices a rank on, within 10 % from 2.

A slot that a token chooses with chance q is needed by T tokens with chance 1 - (1 - q)^T; the sum over a rank's slots
is the number of experts with weights that it reads.
"""
from statistics import NormalDist

import msgspec
import numpy as np

MOST_TOKENS = 32768             # of all ranks; larger numbers use this entry
EXACT_UP_TO, PER_OCTAVE = 32, 4


class ExpertLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Work of the busiest rank, by tokens of all ranks; means over layers."""

    imbalance: np.ndarray       # (MOST_TOKENS + 1,): times the mean of all ranks
    activated: np.ndarray       # (MOST_TOKENS + 1,): experts that are needed on the rank that needs most
    expected: float             # imbalance of infinitely many tokens

    def tokens(self, tokens: np.ndarray) -> np.ndarray:
        """Return as many tokens as keep every rank as busy as these keep the busiest."""
        return tokens * self.imbalance[np.minimum(tokens, MOST_TOKENS).astype(int)]


def expert_load(shares: np.ndarray, slot_fracs: np.ndarray, chosen: int) -> ExpertLoad:
    """Work out the load of the busiest rank.

    Parameters
    ----------
    shares : (layers, ranks): of the work; each layer adds up to 1.
    slot_fracs : (layers, ranks, slots of a rank): of the tokens, that choose the slot.
    chosen : experts a token.
    """
    nodes = _nodes()
    load = np.array([imbalance(shares, node * chosen).mean() for node in nodes]) * nodes
    needed = np.array([(1 - (1 - np.minimum(slot_fracs, 1.0)) ** node).sum(axis=2).max(axis=1).mean()
                       for node in nodes])
    tokens = np.arange(MOST_TOKENS + 1.0)
    factors = np.interp(tokens, nodes, load)
    factors[1:] /= tokens[1:]
    factors[0] = factors[1]
    return ExpertLoad(imbalance=factors, activated=np.interp(tokens, np.append(0, nodes), np.append(0, needed)),
                      expected=float(imbalance(shares, np.inf).mean()))


def imbalance(shares: np.ndarray, choices: float) -> np.ndarray:
    """Return the expected imbalance of each layer, (layers,), for a number of choices."""
    ranks = shares.shape[1]
    contending = np.arange(1, ranks + 1)
    sorted_shares = -np.sort(-shares, axis=1)
    means = np.cumsum(sorted_shares, axis=1) / contending
    variances = np.cumsum(sorted_shares * (1 - sorted_shares), axis=1) / contending
    busiest = means + expected_largest(ranks) * np.sqrt(np.maximum(variances, 0.0) / choices)
    return np.minimum(busiest.max(axis=1) * ranks, ranks)


def expected_largest(most: int) -> np.ndarray:
    """Return the expected largest of 1, 2, ... standard normals, Blom's approximation."""
    return np.array([NormalDist().inv_cdf((m - 0.375) / (m + 0.25)) for m in range(1, most + 1)])


def _nodes() -> np.ndarray:
    octaves = np.arange(np.log2(EXACT_UP_TO), np.log2(MOST_TOKENS) + 1e-9, 1 / PER_OCTAVE)
    return np.unique(np.append(np.arange(1, EXACT_UP_TO + 1), np.round(2 ** octaves))).astype(float)
