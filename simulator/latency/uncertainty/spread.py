"""Errors of the predictions of one operator against measurements."""
import math
from typing import NamedTuple

import numpy as np

NUM_SHARES = 64                 # number of stored quantiles of a normal distribution


class Spread(NamedTuple):
    """Absolute errors; positive and negative ones are equally likely.

    sizes : |ln(predicted / measured)|, float64 (n,), ascending.
    how : the points left out, or the source of the numbers.
    """

    sizes: np.ndarray
    how: str

    @property
    def error_frac(self) -> float:
        """Root mean square of the errors."""
        return float(np.sqrt(np.mean(self.sizes ** 2)))

    def factor(self, position: float) -> float:
        """Return the factor on the predicted time.

        position : quantile of the distribution of factors, 0 .. 1, from shortest to longest time; 0.5: factor 1.
        """
        share = 2.0 * position - 1.0
        return math.exp(math.copysign(float(np.quantile(self.sizes, abs(share))), share)) if share else 1.0


class OperatorError(NamedTuple):
    """The known errors of an operator.

    inside : within the measured range; None: unknown.
    outside : outside the measured range; None: as inside.
    is_outside : bool, of the shape of the operator's table: entries outside the range; or one bool for all.
    tables : names of the tables used.
    """

    inside: Spread | None
    outside: Spread | None = None
    is_outside: np.ndarray | bool = False
    tables: tuple[str, ...] = ()

    @property
    def beyond(self) -> Spread | None:
        """The error outside the measured range."""
        return self.outside or self.inside

    @property
    def is_beyond(self) -> bool:
        """Whether the whole operator is outside the measured range."""
        return bool(np.all(np.asarray(self.is_outside)[..., 1:])) if np.ndim(self.is_outside) else bool(self.is_outside)

    @property
    def error_frac(self) -> float | None:
        """Root mean square error of most of the table; None: unknown."""
        spread = self.beyond if self.is_beyond else self.inside
        return None if spread is None else spread.error_frac


def measured_spread(sizes, how: str) -> Spread | None:
    """Return the distribution of measured errors; None: there are none."""
    sizes = np.sort(np.abs(np.asarray(sizes, dtype=float)))
    sizes = sizes[np.isfinite(sizes)]
    return Spread(sizes, how) if len(sizes) else None


def normal_spread(mean_size: float, how: str) -> Spread:
    """Return normally distributed errors with a given mean absolute value.

    The mean absolute value is sqrt(2 / pi) of their standard deviation.
    """
    from statistics import NormalDist  # few runs need it

    deviation = mean_size * math.sqrt(math.pi / 2.0)
    shares = (np.arange(NUM_SHARES) + 0.5) / NUM_SHARES
    return Spread(deviation * np.array([NormalDist().inv_cdf(0.5 + share / 2.0) for share in shares]), how)


def pooled(spreads) -> Spread | None:
    """Return the joint errors of several lookups; None: there are none."""
    known = [each for each in spreads if each is not None]
    if not known:
        return None
    how = "; ".join(dict.fromkeys(each.how for each in known))
    return Spread(np.sort(np.concatenate([each.sizes for each in known])), how)
