"""Student's t distribution, and the incomplete beta function, which t and the binomial distribution need.

Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.5.8 (the continued fraction) and 26.7.1. Checked
against SciPy in the tests; the packages that every run imports do not include it.
"""
import math
from functools import lru_cache

MOST_TERMS = 10_000
SMALLEST = 1e-300               # in place of a denominator of 0


@lru_cache(4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t.

    Parameters
    ----------
    probability : strictly between 0 and 1.
    degrees : of freedom, above 0; whole or not.
    """
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, 2 * high
    for _ in range(200):                        # until neighbouring doubles are reached
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return high


def t_cdf(t: float, degrees: float) -> float:
    """Return the probability that Student's t is at most `t`."""
    tail = beta_inc(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2
    return 1 - tail if t > 0 else tail


def beta_inc(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b); a, b > 0."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):               # where the fraction converges quickly
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction by Lentz's method."""
    c, d = 1.0, _inverse(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, MOST_TERMS):
        for term in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                     -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d, c = _inverse(1 + term * d), 1 + term / (c or SMALLEST)
            value *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return value


def _inverse(value: float) -> float:
    return 1 / (value or SMALLEST)
