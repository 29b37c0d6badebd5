"""Grades of predictions, by hand."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.study.calibration.grades import grade, noise_floor, quality_of, wasserstein

REAL, SIM = np.array([100.0, 200.0, 300.0, 400.0]), np.array([110.0, 190.0, 330.0, 420.0])
ONE_BLOCK = np.zeros(4, np.int64)
TIMES = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=30).map(np.array)


def test_the_example_of_four_requests():
    found = grade(REAL, SIM, ONE_BLOCK)

    pairs, levels = found["request_level"], found["workload_level"]
    assert pairs["mape"] == pytest.approx(0.075)                # 0.1, 0.05, 0.1, 0.05
    assert pairs["bias"] == pytest.approx(0.05)                 # 0.1 - 0.05 + 0.1 + 0.05, over 4
    assert pairs["pearson_r"] == pytest.approx(0.994542, abs=5e-7)
    assert (pairs["bias_direction"], pairs["quality"], pairs["measured_zero"]) == ("over-predict", "excellent", 0)
    assert (levels["p50"]["real"], levels["p50"]["sim"]) == pytest.approx((250.0, 260.0))
    assert (levels["p90"]["real"], levels["p90"]["sim"]) == pytest.approx((370.0, 393.0))
    assert levels["p50"]["error"] == pytest.approx(10.0) and levels["p50"]["percent"] == pytest.approx(4.0)
    assert found["ks"] == pytest.approx(0.25)
    assert found["wasserstein_over_mean"] == pytest.approx(0.07)        # (10 + 10 + 30 + 20) / 4 / 250
    assert found["noise_floor"] is found["within_noise"] is None        # one block alone


def test_a_few_long_requests_do_not_decide_the_bias():
    found = grade(np.array([1.0, 1.0, 1.0, 1000.0]), np.array([1.5, 1.5, 1.5, 990.0]), ONE_BLOCK)["request_level"]

    assert found["bias"] == pytest.approx((0.5 * 3 - 0.01) / 4)
    assert found["bias_direction"] == "under-predict"           # BLIS's: 1.5 - 10 < 0


def test_what_was_measured_as_0_is_counted():
    found = grade(np.array([0.0, 100.0]), np.array([5.0, 110.0]), np.zeros(2, np.int64))

    assert (found["n"], found["request_level"]["measured_zero"]) == (2, 1)
    assert found["request_level"]["mape"] == pytest.approx(0.1)
    assert grade(np.zeros(2), np.ones(2), np.zeros(2, np.int64))["request_level"]["quality"] is None


def test_pairs_without_both_sides_are_no_pairs():
    assert grade(np.array([1.0, np.nan]), np.array([np.nan, 1.0]), np.zeros(2, np.int64)) is None
    assert grade(np.array([1.0, np.nan]), np.array([2.0, 1.0]), np.zeros(2, np.int64))["n"] == 1


@pytest.mark.parametrize(("mape", "r", "quality"), [
    (0.099, 0.951, "excellent"), (0.099, 0.95, "good"), (0.10, 0.99, "good"), (0.199, 0.851, "good"),
    (0.2, 0.99, "fair"), (0.349, 0.701, "fair"), (0.35, 0.99, "poor"), (0.01, 0.7, "poor"), (0.01, None, "poor"),
    (None, None, None)])
def test_quality_is_blis(mape, r, quality):
    assert quality_of(mape, r) == quality


def test_an_error_below_the_noise_of_what_was_measured_is_within_it():
    measured, blocks = np.array([100.0, 100.0, 120.0, 120.0]), np.array([0, 2, 1, 3])
    floor = noise_floor(measured, blocks)       # even blocks 100, odd ones 120

    assert floor["mean"] == pytest.approx(0.2) and floor["ks"] == 1.0
    assert floor["wasserstein_over_mean"] == pytest.approx(20 / 110)
    near, far = (grade(measured, factor * measured, blocks)["within_noise"] for factor in (1.1, 1.3))
    assert near["mean"] and near["p50"] and near["wasserstein_over_mean"]
    assert not far["mean"] and not far["wasserstein_over_mean"]


@given(TIMES, TIMES)
def test_wasserstein_is_a_distance(left, right):
    assert wasserstein(left, left) == 0.0
    assert wasserstein(left, right) == pytest.approx(wasserstein(right, left))
    assert wasserstein(left, right) >= abs(left.mean() - right.mean()) * (1 - 1e-9) - 1e-9


@given(TIMES)
def test_wasserstein_of_a_shift_is_the_shift(values):
    assert wasserstein(values, values + 3.0) == pytest.approx(3.0)
