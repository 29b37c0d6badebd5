"""Who is beaten in everything goes; noise makes no winners."""
import numpy as np
import pytest

from simulator.study.tuning.pareto import front

# Of A 100,50 B 80,80 C 80,70 D 60,90 E 100,50 F 50,60, both larger the better: B beats C and F, nobody the others.
POINTS = np.array([[100, 50], [80, 80], [80, 70], [60, 90], [100, 50], [50, 60]], dtype=float)
MAX = np.array([True, True])


def names(stays):
    return "".join(np.array(list("ABCDEF"))[stays])


def test_nobody_beaten_in_everything_stays_and_equals_both():
    assert names(front(POINTS, MAX)) == "ABDE"


def test_smaller_may_be_better():
    assert names(front(POINTS * [1, -1], np.array([True, False]))) == "ABDE"


def test_values_within_half_an_interval_are_equal():
    # In the second, C is 10 below B and D 10 above it: equal within half of 20, not within half of 18. Then nobody
    # beats C, and B beats D, whose lead is noise.
    assert names(front(POINTS, MAX, np.full(POINTS.shape, [0, 20]))) == "ABCE"
    assert names(front(POINTS, MAX, np.full(POINTS.shape, [0, 18]))) == "ABDE"


def test_what_is_missing_is_worse_than_any_number():
    values = np.array([[1.0, np.nan], [1.0, 0.0], [np.nan, 5.0]])
    assert front(values, MAX).tolist() == [False, True, True]


def test_front_of_one_objective_is_the_best():
    assert front(np.array([[1.0], [3.0], [2.0], [3.0]]), np.array([True])).tolist() == [False, True, False, True]


@pytest.mark.parametrize("seed", range(20))
def test_front_is_that_of_the_definition(seed):
    values = np.random.default_rng(seed).integers(0, 4, (12, 3)).astype(float)
    beaten = [any((other >= mine).all() and (other > mine).any() for other in values) for mine in values]
    assert front(values, np.array([True] * 3)).tolist() == [not each for each in beaten]


def test_no_candidates_have_no_front():
    assert front(np.empty((0, 2)), MAX).tolist() == []
