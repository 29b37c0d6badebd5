import math
from bisect import bisect_right
from collections import Counter
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simulator.core.weighted_samples import WeightedSamples

LARGE = 2**44           # the first value that does not fit into a packed entry
HEAVY = 2**20           # the first weight that takes more than one entry


def samples_of(*pairs):
    samples = WeightedSamples()
    for value, weight in pairs:
        samples.observe(value, weight)
    return samples


def test_mean_and_deviation_are_weighted():
    # 2, 2, 2, 6: mean 12 / 4 = 3, variance (1 + 1 + 1 + 9) / 4 = 3
    assert samples_of((2, 3), (6, 1)).mean_and_deviation() == (3.0, math.sqrt(3))


def test_an_observation_weighs_one_unless_told_otherwise():
    samples = WeightedSamples()
    samples.observe(7)

    assert samples.total_weight() == 1


def test_equal_observations_do_not_deviate():
    assert samples_of((10**9, 5), (10**9, 2)).mean_and_deviation() == (1e9, 0.0)


def test_nothing_is_lost_to_cancellation():
    # 2**43 and 2**43 + 2: mean 2**43 + 1, deviation 1. Their squares, near 2**86, differ by 2**45: doubles of that size
    # are 2**34 apart, and mean of squares less square of mean, 1, would drown.
    assert samples_of((2**43, 1), (2**43 + 2, 1)).mean_and_deviation() == (2**43 + 1, 1.0)


def test_no_observation_has_no_mean():
    samples = WeightedSamples()

    assert samples.mean_and_deviation() == (None, None)
    assert samples.total_weight() == 0
    assert samples.at_ranks([]) == []
    assert [len(column) for column in samples.pairs()] == [0, 0]


def test_ranks_count_each_observation():
    # in order: 1, 1, 4, 9, 9, 9
    samples = samples_of((9, 3), (1, 2), (4, 1))

    assert samples.at_ranks(range(6)) == [1, 1, 4, 9, 9, 9]
    assert samples.at_ranks([1, 1, 5]) == [1, 1, 9]


@pytest.mark.parametrize("pairs", [[], [(4, 2)], [(LARGE, 2)], [(4, 1), (LARGE, 1)]])
def test_a_rank_behind_the_last_is_refused(pairs):
    total = sum(weight for _, weight in pairs)

    with pytest.raises(IndexError, match=f"rank {total} of {total} observations"):
        samples_of(*pairs).at_ranks([total])


def test_observations_may_follow_a_question():
    samples = samples_of((5, 1), (3, 1))
    assert samples.at_ranks([0, 1]) == [3, 5]

    samples.observe(4)

    assert samples.at_ranks([0, 1, 2]) == [3, 4, 5]


def test_pairs_come_by_value():
    values, weights = samples_of((9, 3), (LARGE, 7), (1, 2)).pairs()

    assert (values.dtype, weights.dtype) == (np.int64, np.int64)
    assert (values.tolist(), weights.tolist()) == ([1, 9, LARGE], [2, 3, 7])


def test_a_large_value_stands_beside_the_packed_ones():
    # 0, 2**44 - 1, 2**44: mean (2**45 - 1) / 3
    samples = samples_of((LARGE, 1), (LARGE - 1, 1), (0, 1))

    assert samples.size == 2
    assert samples.at_ranks([0, 1, 2]) == [0, LARGE - 1, LARGE]
    assert samples.mean_and_deviation()[0] == (2**45 - 1) / 3


@pytest.mark.parametrize(("weight", "entries"), [(HEAVY - 1, 1), (HEAVY, 2), (2 * HEAVY - 1, 3), (2**31 - 1, 2049)])
def test_a_heavy_observation_takes_several_entries(weight, entries):
    # An entry holds 2**20 - 1 at most: 2**20 = 1 entry + 1, 2**21 - 1 = 2 entries + 1, 2**31 - 1 = 2048 entries + 2047.
    samples = samples_of((3, weight), (5, 1))

    assert samples.size == entries + 1
    assert samples.total_weight() == weight + 1
    assert samples.at_ranks([0, weight - 1, weight]) == [3, 3, 5]


def test_many_observations_find_room():
    # 0 .. 9999 backwards: mean 9999 / 2, variance (10000**2 - 1) / 12
    samples = samples_of(*((value, 1) for value in reversed(range(10_000))))

    assert samples.at_ranks([0, 4999, 9999]) == [0, 4999, 9999]
    assert samples.mean_and_deviation() == (4999.5, math.sqrt((10_000**2 - 1) / 12))


@pytest.mark.parametrize(("value", "weight"), [(-1, 1), (3, 0), (3, -1)])
def test_an_impossible_observation_is_refused(value, weight):
    samples = WeightedSamples()

    with pytest.raises(ValueError, match="value >= 0 and a weight >= 1"):
        samples.observe(value, weight)
    assert samples.total_weight() == 0


values = st.one_of(st.integers(0, 5), st.integers(LARGE - 2, LARGE + 2), st.integers(0, 2**62))
weights = st.one_of(st.integers(1, 3), st.integers(HEAVY - 2, 2 * HEAVY))
observations = st.lists(st.tuples(values, weights), min_size=1, max_size=20)


@given(observations)
def test_mean_and_deviation_are_those_of_exact_arithmetic(pairs):
    total = sum(weight for _, weight in pairs)
    mean = Fraction(sum(value * weight for value, weight in pairs), total)
    variance = sum((value - mean) ** 2 * weight for value, weight in pairs) / total

    samples = samples_of(*pairs)

    assert samples.total_weight() == total
    assert samples.mean_and_deviation() == (float(mean), math.sqrt(variance))


@given(observations, st.data())
def test_ranks_are_those_of_the_sorted_observations(pairs, data):
    pairs_by_value = sorted(pairs)
    ends = list(accumulate(weight for _, weight in pairs_by_value))
    edges = [rank for end in ends for rank in (end - 1, end) if rank < ends[-1]]
    ranks = sorted(data.draw(st.lists(st.one_of(st.sampled_from(edges), st.integers(0, ends[-1] - 1)), max_size=20)))

    found = samples_of(*pairs).at_ranks(ranks)

    assert found == [pairs_by_value[bisect_right(ends, rank)][0] for rank in ranks]


@given(observations)
@example([(LARGE, HEAVY)])
def test_pairs_add_up_to_what_was_observed(pairs):
    observed, found = Counter(), Counter()
    for value, weight in pairs:
        observed[value] += weight

    columns = [column.tolist() for column in samples_of(*pairs).pairs()]
    for value, weight in zip(*columns, strict=True):
        found[value] += weight

    assert found == observed
    assert columns[0] == sorted(columns[0])
    assert min(columns[1]) >= 1


@given(observations, st.randoms(use_true_random=False))
def test_neither_order_nor_grouping_shows(pairs, random):
    split = [part for value, weight in pairs for part in ((value, 1), (value, weight - 1)) if part[1] > 0]
    random.shuffle(split)

    assert samples_of(*split).mean_and_deviation() == samples_of(*pairs).mean_and_deviation()


@pytest.mark.slow
def test_a_large_sample_of_few_values_keeps_few_entries():
    # 20 million observations of 1000 values: 2**23 entries fill up and merge, again and again, and nothing is lost.
    values = np.tile(np.arange(1000, dtype=np.int64), 20_000)
    samples = WeightedSamples()

    samples.observe_all(values, np.ones(len(values), np.int32))

    assert samples.size <= 2**23
    assert samples.total_weight() == 20_000_000
    assert samples.mean_and_deviation() == pytest.approx((499.5, ((1000**2 - 1) / 12) ** 0.5))
    assert samples.at_ranks([0, 19_999, 20_000, 19_999_999]) == [0, 0, 1, 999]
