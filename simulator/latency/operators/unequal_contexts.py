"""Attention of decodes whose contexts are of unequal length.

The longest sequence keeps its cores busy when the others have ended: a batch takes more than one of as many sequences
of the mean length, and less than one of as many of the longest. Profiles say how far between the two it lies,

    time = at the mean + alpha (at the longest - at the mean)

by the number of decodes, and by how much of the way from the shortest context to the longest the mean lies; beside
prompts and alone. Source of the form and of the measurements: LLMServingSim's skew sweep (casys-kaist/LLMServingSim,
docs/docs/profiler/skew-alpha-fit.md), single kernels of vLLM 0.19.0, 12,000 to 13,000 batches a profile. Of groups of
batches that differ in what is not asked here (the longest context, the prompts beside) the middle one counts, by the
batches measured. Tables of others hold nothing of the kind: there all contexts count as long as their mean.
"""
import numpy as np

from simulator.latency.operators import prices

# Bounds of (mean - shortest) / (longest - shortest), the upper one included.
SHARES = (0.05, 0.15, 0.4, 0.7, 1.0)
DECODES = tuple(2 ** i for i in range(1, 9))    # the nearest one counts, by its logarithm


def shares_table(composer) -> np.ndarray | None:
    """Return alpha by place; None: not measured, or left out.

    float64 (alone or beside prompts, DECODES, SHARES). composer : Composer
    """
    if prices.UNEQUAL_CONTEXTS in composer.parameters.without:
        return None
    columns = composer.database.columns("unequal_contexts")
    if columns is None:
        return None
    found = np.zeros((2, len(DECODES), len(SHARES)))
    for beside in range(2):
        for row, decodes in enumerate(DECODES):
            for place, share in enumerate(SHARES):
                found[beside, row, place] = _middle(columns, beside, decodes, share)
    composer.origins["unequal contexts"] = "measured"
    return found


def _middle(columns: dict, beside: int, decodes: int, share: float) -> float:
    """Return the middle alpha of a group; of one that nobody measured, that of all shares, or of all batches."""
    is_kind = columns["is_beside_prompts"] == beside
    is_size = is_kind & (columns["decodes"] == decodes)
    for chosen in (is_size & (columns["most_share"] == share), is_size, is_kind):
        if chosen.any():
            order = np.argsort(columns["alpha"][chosen], kind="stable")
            weight = np.cumsum(columns["samples"][chosen][order])
            return float(columns["alpha"][chosen][order][np.searchsorted(weight, weight[-1] / 2)])
    return 0.0
