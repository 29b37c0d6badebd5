"""Tables of predicted times: a forest's prediction at every point that an iteration can have."""
from dataclasses import dataclass, field

import numpy as np

MEASURED, INTERPOLATED, EXTRAPOLATED = 0, 1, 2      # position of an entry relative to the measurements
ROUNDING = 8                    # Vidur rounds the tokens of an iteration up to a multiple of this


@dataclass(frozen=True)
class ForestTables:
    """Milliseconds, float64.

    tokens : by operator, (tokens + 1,): one layer, by tokens of the iteration.
    host : by step, (sequences + 1,): host times, by sequences of the iteration.
    decode : (sequences + 1, contexts): attention of one layer, by decoding sequences and mean context.
    prefill : (contexts, tokens + 1): attention of one layer, by context and tokens of a chunk.
    kv_granularity : contexts are multiples of this.
    covered : by operator, uint8 of the shape of its table: MEASURED, INTERPOLATED or EXTRAPOLATED; an operator that is
        missing here counts as INTERPOLATED.
    chosen : by operator, the parameters of its estimator that scored best over the folds.
    """

    tokens: dict[str, np.ndarray]
    decode: np.ndarray
    prefill: np.ndarray
    kv_granularity: int
    host: dict[str, np.ndarray] = field(default_factory=dict)
    covered: dict[str, np.ndarray] = field(default_factory=dict)
    chosen: dict[str, dict] = field(default_factory=dict)

    def coverage_of(self, operator: str) -> np.ndarray:
        """Return the positions of an operator's entries relative to the measurements."""
        if operator in self.covered:
            return self.covered[operator]
        tables = {"attn_decode": self.decode, "attn_prefill": self.prefill} | self.tokens | self.host
        return np.full(tables[operator].shape, INTERPOLATED, dtype=np.uint8)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all tables by their names in a file, sorted."""
        named = {f"tokens/{name}": table for name, table in self.tokens.items()}
        named |= {f"host/{name}": table for name, table in self.host.items()}
        named |= {f"covered/{name}": table for name, table in self.covered.items()}
        return dict(sorted({**named, "decode": self.decode, "prefill": self.prefill}.items()))


def coverage(features: np.ndarray, axes: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the position of each entry relative to the measurements, uint8.

    INTERPOLATED: a measurement is at most as large in every feature, and another is at least as large.

    Parameters
    ----------
    features : float64 (n, k), measured points.
    axes : k arrays of ascending feature values.
    """
    at, above, below = (np.zeros(tuple(map(len, axes)), dtype=bool) for _ in range(3))
    up = np.array([np.searchsorted(axis, column, "left") for axis, column in zip(axes, features.T)])
    down = np.array([np.searchsorted(axis, column, "right") - 1 for axis, column in zip(axes, features.T)])
    is_before_end = np.all([index < len(axis) for axis, index in zip(axes, up)], axis=0)
    at[tuple(up[:, is_before_end & np.all(up == down, axis=0)])] = True
    below[tuple(up[:, is_before_end])] = True
    above[tuple(down[:, np.all(down >= 0, axis=0)])] = True
    for dimension in range(len(axes)):
        below = np.logical_or.accumulate(below, axis=dimension)
        above = np.flip(np.logical_or.accumulate(np.flip(above, dimension), axis=dimension), dimension)
    return np.where(at, MEASURED, np.where(above & below, INTERPOLATED, EXTRAPOLATED)).astype(np.uint8)
