"""Arrivals that a series shows."""
import numpy as np
import pytest

from simulator.study.server_check.demand import WARM_S, demand_of
from simulator.study.server_check.series import Facts, ServerSeries

TIMES_S = np.array([100.0, 110.0, 120.0, 130.0])


def series(**values):
    return ServerSeries(TIMES_S, {name: np.array(column, float) for name, column in values.items()}, Facts())


def test_arrivals_are_ends_and_growth_inside():
    found = demand_of(series(running=[0, 2, 2, 1], waiting=[0, 1, 0, 0], ended=[50, 50, 53, 58]), 100.0)

    assert found.edges_s.tolist() == [0, 10, 20, 30]
    assert found.counts.tolist() == [3, 2, 4]           # 3 inside; 3 ended, 1 less inside; 5 ended, 1 less inside
    assert found.lead_s == 0 and found.rate_per_s == pytest.approx(0.3)


def test_noise_that_falls_is_no_arrival_and_a_gap_is_one_window():
    found = demand_of(series(running=[4, 3, np.nan, 6], waiting=[0] * 4, ended=[0, 0, np.nan, 0]), 100.0)

    assert found.edges_s.tolist() == [0, 10, 30]
    assert found.counts.tolist() == [0, 2]              # 6 by the last reading, 4 were inside before
    assert found.lead_s == WARM_S


def test_without_ends_prompts_count():
    found = demand_of(series(running=[0] * 4, prompt_tokens=[0, 1000, 1000, 4000]), 500.0)

    assert found.counts.tolist() == [2, 0, 6]
    assert demand_of(series(running=[0] * 4), 500.0) is None


def test_times_are_within_their_windows():
    found = demand_of(series(running=[0] * 4, ended=[0, 3, 3, 10]), 100.0)

    times_s = found.times_s(7)

    assert np.histogram(times_s, [0, 10, 20, 30])[0].tolist() == [3, 0, 7]
    assert times_s.tolist() == found.times_s(7).tolist() != found.times_s(8).tolist()
