"""Fits of runs, and the likelihood of measured numbers."""
import numpy as np
import pytest

from simulator.study.server_check.features import FEATURES
from simulator.study.server_check.likelihood import ERRORS, fit, log_likelihood, speeds

STEP, TTFT = (next(number for number, each in enumerate(FEATURES) if each.name == name)
              for name in ("step_ms", "ttft_ms"))


def runs(slopes, count=5):
    """Return numbers of runs that change by these slopes with prices."""
    errors = speeds(count)
    numbers = np.zeros((count, len(FEATURES)))
    for place, slope in slopes.items():
        numbers[:, place] = slope * errors
    return numbers, errors


def test_a_fit_finds_what_follows_prices():
    found = fit(*runs({STEP: 0.1, TTFT: 0.3}))

    assert found.slope[[STEP, TTFT]] == pytest.approx([0.1, 0.3])
    assert found.mean == pytest.approx(0.0)
    assert found.spread == pytest.approx(ERRORS)        # runs on a line: the error of a right model is left
    assert found.width[TTFT] == pytest.approx(np.hypot(0.3, ERRORS[TTFT]))


def test_prices_that_are_off_together_are_likelier_than_one_number_that_is_off():
    found = fit(*runs({STEP: 0.1, TTFT: 0.3}))
    together, alone = np.zeros((2, len(FEATURES)))
    together[[STEP, TTFT]] = 0.1, 0.3
    alone[TTFT] = 0.3

    assert log_likelihood(together, found) > log_likelihood(alone, found) + 1


def test_a_number_that_is_not_measured_says_nothing_and_one_that_runs_lack_speaks_against_them():
    numbers, errors = runs({STEP: 0.1})
    found = fit(numbers, errors)
    numbers[:, TTFT] = np.nan
    without = fit(numbers, errors)
    measured = np.zeros(len(FEATURES))

    assert log_likelihood(measured, without) < log_likelihood(measured, found) - 5
    measured[TTFT] = np.nan
    assert log_likelihood(measured, without) == pytest.approx(log_likelihood(measured, found))


def test_one_run_has_the_slopes_of_the_experiment():
    usual = fit(*runs({STEP: 0.1}))

    found = fit(np.full((1, len(FEATURES)), 2.0), np.ones(1), usual)

    assert found.mean[STEP] == pytest.approx(1.9)       # at the prices as they are
    assert found.slope is usual.slope and found.spread is usual.spread
