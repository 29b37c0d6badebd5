"""How far the predictions of one operator were off where the truth is known."""
import math
from typing import NamedTuple

import numpy as np

NUM_SHARES = 64                 # at which a normal distribution is kept


class Spread(NamedTuple):
    """Sizes of errors; too long and too short are equally likely.

    sizes : |ln(predicted / measured)|, float64 (n,), ascending.
    how : what was left out, or where the numbers are from.
    """

    sizes: np.ndarray
    how: str

    @property
    def error_frac(self) -> float:
        """The root of the mean square."""
        return float(np.sqrt(np.mean(self.sizes ** 2)))

    def factor(self, position: float) -> float:
        """Return the factor on the predicted time.

        position : in the distribution of factors, 0 .. 1, from the shortest time to the longest; 0.5: as predicted.
        """
        share = 2.0 * position - 1.0
        return math.exp(math.copysign(float(np.quantile(self.sizes, abs(share))), share)) if share else 1.0


class OperatorError(NamedTuple):
    """What is known of the error of an operator.

    inside : within what was measured; None: nothing is known.
    outside : beyond it; None: as inside.
    is_outside : bool, of the shape of the operator's table: which entries lie beyond; or one for all.
    tables : names of the tables that were looked up.
    """

    inside: Spread | None
    outside: Spread | None = None
    is_outside: np.ndarray | bool = False
    tables: tuple[str, ...] = ()

    @property
    def beyond(self) -> Spread | None:
        """The error outside of what was measured."""
        return self.outside or self.inside

    @property
    def is_beyond(self) -> bool:
        """Nothing of it was measured."""
        return bool(np.all(np.asarray(self.is_outside)[..., 1:])) if np.ndim(self.is_outside) else bool(self.is_outside)

    @property
    def error_frac(self) -> float | None:
        """That of the spread which most of the table has; None: nothing is known."""
        spread = self.beyond if self.is_beyond else self.inside
        return None if spread is None else spread.error_frac


def measured_spread(sizes, how: str) -> Spread | None:
    """Return the distribution of errors that were measured; None: there are none."""
    sizes = np.sort(np.abs(np.asarray(sizes, dtype=float)))
    sizes = sizes[np.isfinite(sizes)]
    return Spread(sizes, how) if len(sizes) else None


def normal_spread(mean_size: float, how: str) -> Spread:
    """Return normal errors of which the mean size alone is known.

    That is sqrt(2 / pi) of their deviation.
    """
    from statistics import NormalDist  # few runs ask for it

    deviation = mean_size * math.sqrt(math.pi / 2.0)
    shares = (np.arange(NUM_SHARES) + 0.5) / NUM_SHARES
    return Spread(deviation * np.array([NormalDist().inv_cdf(0.5 + share / 2.0) for share in shares]), how)


def pooled(spreads) -> Spread | None:
    """Return the errors of several lookups together; None: there are none."""
    known = [each for each in spreads if each is not None]
    if not known:
        return None
    how = "; ".join(dict.fromkeys(each.how for each in known))
    return Spread(np.sort(np.concatenate([each.sizes for each in known])), how)
