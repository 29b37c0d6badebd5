"""One series of a metric, its parts from several files, and sums over labels."""
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from simulator.errors import InputErrors


class Series(NamedTuple):
    """One series: values at ascending times, seconds since 1970.

    name : newest name of its metric. source : its place in messages.
    """

    name: str
    labels: Mapping[str, str]
    times_s: np.ndarray
    values: np.ndarray
    source: str


def joined(found: Iterable[Series]) -> list[Series]:
    """Return series with their parts from several files joined; a time counts once.

    Series of an old and a new name of a metric, which some versions of vLLM report both, are parts, too.
    """
    parts: dict[tuple, list[Series]] = {}
    for each in found:
        parts.setdefault((each.name, *sorted(each.labels.items())), []).append(each)
    made = []
    for members in parts.values():
        times_s, first = np.unique(np.concatenate([each.times_s for each in members]), return_index=True)
        values = np.concatenate([each.values for each in members])[first]
        made.append(members[0]._replace(times_s=times_s, values=values))
    return made


def upper_bound(bucket: Series) -> float:
    """Return the upper bound of a bucket of a histogram.

    Raises
    ------
    InputErrors
        Its label is no number.
    """
    text = bucket.labels.get("le", "inf")
    try:
        return float(text)
    except ValueError:
        raise InputErrors([f"{bucket.source}: le of {bucket.name}: expected a number, found {text!r}"]) from None


def times_of(found: Iterable[Series]) -> np.ndarray:
    """Return all times of series, ascending."""
    return np.unique(np.concatenate([np.zeros(0), *(each.times_s for each in found)]))


def summed(members: Iterable[Series], times_s: np.ndarray) -> np.ndarray:
    """Return the sum of series over labels such as finished_reason.

    It is NaN where no series has a value.
    """
    total = np.full(len(times_s), np.nan)
    for each in members:
        places = np.searchsorted(times_s, each.times_s)
        total[places] = np.nan_to_num(total[places]) + each.values
    return total
