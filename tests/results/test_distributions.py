"""Mean, deviation and percentiles, plain and weighted."""
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.core.weighted_samples import WeightedSamples
from simulator.results.distributions import KEYS, PERCENTILES, distribution, weighted_distribution_ms

WEIGHTED = st.lists(st.tuples(st.integers(0, 2**62), st.integers(1, 40)), max_size=30)
MS = 1_000_000


def samples_of(*pairs):
    """Collect (value in ns, weight) pairs."""
    samples = WeightedSamples()
    for value, weight in pairs:
        samples.observe(value, weight)
    return samples


def test_percentiles_interpolate_linearly():
    # ranks of 5 samples are 0..4: p50 at rank 2, p90 at 3.6, p95 at 3.8, p99 at 3.96; variance (4+1+0+1+4)/5 = 2
    found = distribution(np.array([5.0, 1.0, 4.0, 2.0, 3.0]))

    assert found == pytest.approx({
        "mean": 3.0, "std": 2 ** 0.5, "min": 1.0, "p50": 3.0, "p90": 4.6, "p95": 4.8, "p99": 4.96, "max": 5.0})
    assert tuple(found) == KEYS


def test_weighted_samples_count_as_often_as_they_occur():
    # 1, 1, 1, 3: mean 1.5, variance (3 * 0.25 + 2.25) / 4 = 0.75, p90 at rank 2.7: 1 + 0.7 * 2
    found = weighted_distribution_ms(samples_of((3 * MS, 1), (MS, 1), (MS, 2)))

    assert found == pytest.approx({
        "mean": 1.5, "std": 0.75 ** 0.5, "min": 1.0, "p50": 1.0, "p90": 2.4, "p95": 2.7, "p99": 2.94, "max": 3.0})


@pytest.mark.parametrize("found", [distribution(np.empty(0)), weighted_distribution_ms(WeightedSamples())])
def test_no_sample_gives_null(found):
    assert found == dict.fromkeys(KEYS)
    assert "NaN" not in json.dumps(found)


@settings(max_examples=300, deadline=None)
@given(WEIGHTED)
def test_weighted_percentiles_are_those_of_the_expanded_samples_to_the_last_bit(samples):
    samples_ns = np.array([sample_ns for sample_ns, _ in samples], np.int64)
    counts = np.array([count for _, count in samples], np.int32)
    expanded = np.repeat(samples_ns, counts) / 1e6

    found = weighted_distribution_ms(samples_of(*samples))

    if not len(expanded):
        assert set(found.values()) == {None}
        return
    expected = np.percentile(expanded, PERCENTILES).tolist()
    assert [found[f"p{percentile}"] for percentile in PERCENTILES] == expected
    assert (found["min"], found["max"]) == (expanded.min(), expanded.max())
    assert found["mean"] == pytest.approx(expanded.mean())
    assert found["std"] == pytest.approx(expanded.std(), abs=1e-6 * (1 + expanded.max()))


def test_a_gap_of_five_hours_and_a_weight_of_two_million_are_kept():
    # 2**44 ns, about 4.9 h, and 2**20 - 1 are the most that a packed entry holds: p50 at rank 1,000,000.5 of 2,000,002
    hours = 5 * 3600 * 1000

    found = weighted_distribution_ms(samples_of((hours * MS, 2), (1 * MS, 2_000_000)))

    assert (found["min"], found["p50"], found["max"]) == (1.0, 1.0, hours)
    assert found["mean"] == pytest.approx((2_000_000 + 2 * hours) / 2_000_002)


@given(WEIGHTED, st.randoms())
def test_neither_order_nor_grouping_of_observations_shows(samples, random):
    single = [(value, 1) for value, weight in samples for _ in range(weight)]
    random.shuffle(single)

    assert weighted_distribution_ms(samples_of(*samples)) == weighted_distribution_ms(samples_of(*single))
