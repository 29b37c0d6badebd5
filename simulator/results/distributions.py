"""Mean, spread and percentiles of samples, plain or weighted, exactly as NumPy gives them."""
import numpy as np

from simulator.core.quantile_sketch import QuantileSketch
from simulator.core.weighted_samples import WeightedSamples

PERCENTILES = (50, 90, 95, 99)
KEYS = ("mean", "std", "min", *(f"p{percentile}" for percentile in PERCENTILES), "max")


def distribution(samples: np.ndarray) -> dict[str, float | None]:
    """Describe samples by mean, population deviation, extremes and percentiles.

    Parameters
    ----------
    samples : float64 array (n,)

    Returns
    -------
    dict
        `KEYS`, each None where there is no sample. Percentiles interpolate linearly, as `numpy.percentile` does.
    """
    if not len(samples):
        return dict.fromkeys(KEYS)
    ranks = _Ranks(len(samples))
    values = np.partition(samples, ranks.needed)[ranks.needed]
    described = (samples.mean(), samples.std(), values[0], *ranks.interpolated(values), values[-1])
    return dict(zip(KEYS, map(float, described), strict=True))


def weighted_distribution_ms(samples_ns: WeightedSamples) -> dict[str, float | None]:
    """Describe, in ms, samples in ns that are not expanded.

    Percentiles equal those of the expanded samples to the last bit; mean and deviation are rounded once.
    """
    num_samples = samples_ns.total_weight()
    if not num_samples:
        return dict.fromkeys(KEYS)
    mean, deviation = samples_ns.mean_and_deviation()
    ranks = _Ranks(num_samples)
    values = np.array(samples_ns.at_ranks(ranks.needed)) / 1e6
    described = (mean / 1e6, deviation / 1e6, values[0], *ranks.interpolated(values), values[-1])
    return dict(zip(KEYS, map(float, described), strict=True))


def sketched_distribution(samples: QuantileSketch, unit: float) -> dict[str, float | None]:
    """Describe samples of which a sketch is kept.

    unit : of the result, in units of the samples.

    Mean, deviation and extremes are rounded once; percentiles are within `quantile_sketch.RELATIVE_ERROR`.
    """
    if not samples.count:
        return dict.fromkeys(KEYS)
    (mean, deviation), (least, largest) = samples.mean_and_deviation(), samples.extremes()
    ranks = _Ranks(samples.count)
    values = np.array(samples.at_ranks(ranks.needed)) / unit
    described = (mean / unit, deviation / unit, least / unit, *ranks.interpolated(values), largest / unit)
    return dict(zip(KEYS, map(float, described), strict=True))


class _Ranks:
    """Ranks of sorted samples that decide `PERCENTILES` and the extremes; `needed`: their ranks, in order."""

    def __init__(self, num_samples: int):
        rank = (num_samples - 1) * (np.array(PERCENTILES) / 100)
        self._lower = np.floor(rank).astype(np.int64)
        self._upper = np.minimum(self._lower + 1, num_samples - 1)
        self._fraction = rank - self._lower
        self.needed = sorted({0, *self._lower.tolist(), *self._upper.tolist(), num_samples - 1})

    def interpolated(self, values: np.ndarray) -> list[float]:
        """Return the percentiles, given the samples of the ranks that are needed.

        Interpolates around rank q (n - 1) in numpy.percentile's order of operations: it measures from the nearer of the
        two neighbours (numpy/lib/_function_base_impl.py, _lerp), which decides the last bit. That function itself would
        load numpy.ma, 9 ms.
        """
        lower, upper = (values[np.searchsorted(self.needed, ranks)] for ranks in (self._lower, self._upper))
        step = upper - lower
        return np.where(self._fraction < 0.5, lower + step * self._fraction,
                        upper - step * (1 - self._fraction)).tolist()
