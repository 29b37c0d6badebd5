"""Attention of decodes with contexts of unequal length.

The longest sequence keeps its cores busy when the others have ended: a batch takes longer than an equal number of
sequences of the mean length, and less than an equal number of the longest. Profiles have the share alpha,

    time = at the mean + alpha (at the longest - at the mean)

by the number of decodes, and by the position of the mean context between the shortest and the longest; beside
prompts and alone. Source of the form and of the measurements: LLMServingSim's skew sweep (casys-kaist/LLMServingSim,
docs/docs/profiler/skew-alpha-fit.md), single kernels of vLLM 0.19.0, 12,000 to 13,000 batches a profile. Groups that
differ only in other variables (longest context, prompts beside) are reduced to their median alpha, weighted by the
number of batches. Other tables have no such measurements: then all contexts count as having the mean length.
"""
import numpy as np

from simulator.latency.operators import prices

# Bounds of (mean - shortest) / (longest - shortest), the upper one included.
SHARES = (0.05, 0.15, 0.4, 0.7, 1.0)
DECODES = tuple(2 ** i for i in range(1, 9))    # the nearest number in logarithms is used


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
    """Return the median alpha of a group; if it was not measured, of all its shares, or of all batches."""
    is_kind = columns["is_beside_prompts"] == beside
    is_size = is_kind & (columns["decodes"] == decodes)
    for chosen in (is_size & (columns["most_share"] == share), is_size, is_kind):
        if chosen.any():
            order = np.argsort(columns["alpha"][chosen], kind="stable")
            weight = np.cumsum(columns["samples"][chosen][order])
            return float(columns["alpha"][chosen][order][np.searchsorted(weight, weight[-1] / 2)])
    return 0.0
