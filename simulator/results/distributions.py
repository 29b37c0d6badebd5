"""Mean, spread and percentiles of samples, plain or weighted, exactly as NumPy gives them."""
import numpy as np

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
    values = (samples.mean(), samples.std(), samples.min(), *np.percentile(samples, PERCENTILES), samples.max())
    return dict(zip(KEYS, map(float, values), strict=True))


def weighted_distribution_ms(samples_ns: WeightedSamples) -> dict[str, float | None]:
    """Describe, in ms, samples in ns that are not expanded.

    Percentiles are those of the expanded samples to the last bit; mean and deviation are rounded once.
    """
    num_samples = samples_ns.total_weight()
    if not num_samples:
        return dict.fromkeys(KEYS)
    mean, deviation = samples_ns.mean_and_deviation()
    # Interpolate around rank q (n - 1) in numpy.percentile's order of operations: it measures from the nearer of the
    # two neighbours (numpy/lib/_function_base_impl.py, _lerp), which decides the last bit.
    rank = (num_samples - 1) * (np.array(PERCENTILES) / 100)
    lower_rank = np.floor(rank).astype(np.int64)
    fraction = rank - lower_rank
    ranks = np.unique([0, *lower_rank, *np.minimum(lower_rank + 1, num_samples - 1), num_samples - 1])
    values = np.array(samples_ns.at_ranks(ranks.tolist())) / 1e6

    def at(wanted):
        return values[np.searchsorted(ranks, wanted)]

    lower, upper = at(lower_rank), at(np.minimum(lower_rank + 1, num_samples - 1))
    step = upper - lower
    middle = np.where(fraction < 0.5, lower + step * fraction, upper - step * (1 - fraction)).tolist()
    described = (mean / 1e6, deviation / 1e6, float(at(0)), *middle, float(at(num_samples - 1)))
    return dict(zip(KEYS, described, strict=True))
