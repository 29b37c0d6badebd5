"""Blocks of time, the objective, the search."""
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputErrors
from simulator.study.calibration.blocks import blocks_of, is_held_out, moving_rows, moving_spans
from simulator.study.calibration.calibrate_table import FitKey
from simulator.study.calibration.confidence import intervals
from simulator.study.calibration.evaluations import FILE, Evaluations
from simulator.study.calibration.objective import objective
from simulator.study.calibration.search import Scale, least, starts_of


def test_whole_blocks_of_10_s_are_held_out():
    blocks = blocks_of(np.array([0.0, 9.999, 10.0, 25.0, 39.0]))

    assert blocks.tolist() == [0, 0, 1, 2, 3]
    assert is_held_out(np.arange(10), 10, 0.3).tolist() == [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]     # floor(3 b / 10) goes up
    assert is_held_out(np.arange(4), 4, 0.5).tolist() == [0, 1, 0, 1]
    assert is_held_out(np.arange(3), 3, 0.1).tolist() == [0, 0, 1]              # at least one
    assert is_held_out(np.arange(2), 2, 0.9).tolist() == [0, 1]                 # and not all


@given(st.integers(2, 500), st.floats(0.01, 0.99))
def test_so_many_blocks_are_held_out_as_was_asked(count, fraction):
    held = int(is_held_out(np.arange(count), count, fraction).sum())

    assert 1 <= held <= count - 1
    assert abs(held - count * fraction) <= 1.0


@given(st.integers(1, 300), st.integers(1, 80))
def test_moving_blocks_are_runs_of_rows(count, length):
    rows = moving_rows(np.random.default_rng(0), count, length)

    assert len(rows) == count and rows.min() >= 0 and rows.max() < count
    assert (np.diff(rows[:min(length, count)]) == 1).all()


@given(st.lists(st.floats(0, 200), min_size=1, max_size=60))
def test_moving_spans_last_10_s(times):
    times = np.sort(times)
    rows = moving_spans(np.random.default_rng(0), times)

    assert len(rows) == len(times)
    first = rows[:1 + int(np.argmin(np.append(np.diff(rows) == 1, False)))]
    assert times[first[-1]] - times[first[0]] < 10.0 or len(first) > 1


def test_the_objective_is_of_quantiles_and_a_tenth_of_single_requests():
    real = np.linspace(1.0, 2.0, 50)
    twice = dict.fromkeys(("ttft", "tpot", "e2e"), (real, 2 * real))

    # every quantile and every request is off by log 2: 3 metrics x (1 + 0.1) x log(2)^2
    assert objective([twice], {}, {}) == pytest.approx(3.3 * math.log(2) ** 2)
    assert objective([twice, dict.fromkeys(twice, (real, real))], {}, {}) == pytest.approx(
        3.3 * math.log(2) ** 2 / 2)                                         # the mean over data sets
    halves = dict.fromkeys(twice, (real, real / 2))
    assert objective([halves], {}, {}) == pytest.approx(objective([twice], {}, {}))


def test_a_swap_of_requests_is_seen_by_the_paired_part_alone():
    real = np.array([1.0, 2.0])
    assert objective([{"ttft": (real, real[::-1])}], {}, {}) == pytest.approx(0.1 * math.log(2) ** 2)


def test_a_request_that_does_not_end_counts_as_ten_times_as_long():
    assert objective([{"ttft": (np.array([2.0]), np.array([np.nan]))}], {}, {}) == pytest.approx(
        1.1 * math.log(10) ** 2)


def test_a_prior_adds_a_hundredth_for_each_standard_deviation():
    fit = {"a": FitKey(min=0.0, max=10.0, prior=4.0, prior_sd=2.0), "b": FitKey(min=0.0, max=10.0)}
    pairs = {"ttft": (np.ones(2), np.ones(2))}
    assert objective([pairs], {"a": 8.0, "b": 1.0}, fit) == pytest.approx(0.04)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.3, 1.0), (0.0, 1e6), (1.0, 1e5), (-5.0, 5.0)])
def test_a_range_is_walked_from_end_to_end(low, high):
    scale = Scale(FitKey(min=low, max=high))

    assert (scale.value(0.0), scale.value(1.0)) == pytest.approx((low, high))
    assert all(scale.share(scale.value(share)) == pytest.approx(share) for share in (0.1, 0.5, 0.9))
    assert scale.value(0.1) < scale.value(0.11)


def test_starts_are_a_latin_hypercube_and_no_key_moves_another():
    one, two = FitKey(min=0.0, max=1.0), {"a": FitKey(min=0.0, max=1.0), "b": FitKey(min=0.0, max=1.0)}
    starts = starts_of(two, 7)

    assert sorted((5 * starts[:, 0]).astype(int)) == sorted((5 * starts[:, 1]).astype(int)) == [0, 1, 2, 3, 4]
    assert (starts_of({"b": one}, 7)[:, 0] == starts[:, 1]).all()


@pytest.mark.slow
def test_the_search_crosses_a_valley_where_one_key_makes_up_for_another():
    pytest.importorskip("scipy", reason="the extra `fit`")
    fit = {"a": FitKey(min=0.0, max=10.0), "b": FitKey(min=0.0, max=10.0)}
    times = np.linspace(1.0, 2.0, 19)

    def residuals_at(values):       # 19 numbers: a + b counts for all, a alone for little
        return (values["a"] + values["b"] - 7.0 + 0.02 * times * (values["a"] - 2.0)) * np.ones(19)

    calls = []

    def evaluate(values):
        calls.append(values)
        return float((residuals_at(values) ** 2).sum())

    found = least(evaluate, residuals_at, fit, 100, 0)
    assert found == pytest.approx({"a": 2.0, "b": 5.0}, abs=1e-3)
    assert len(calls) < 200
    assert least(evaluate, residuals_at, fit, 100, 0) == found


def test_what_an_interval_says():
    fit = {"latency.base_us": FitKey(min=0.0, max=100.0), "latency.mfu_prefill": FitKey(min=0.3, max=1.0)}
    sure = intervals(np.array([[50.0, 0.5], [51.0, 0.6]]), fit, (True, True))
    assert all(each.reason is None for each in sure.values())

    unsure = intervals(np.array([[0.0, 0.3]] * 10 + [[51.0, 1.0]] * 10), fit, (True, True))
    assert unsure["latency.base_us"].reason.startswith("its interval holds 0; what would tell it: few sequences")
    assert unsure["latency.mfu_prefill"].reason.startswith("its interval reaches both bounds; what would tell it: long")
    idle = intervals(np.array([[50.0, 0.5]]), fit, (True, False))
    assert idle["latency.mfu_prefill"][:2] == (0.3, 1.0)
    assert idle["latency.mfu_prefill"].reason.startswith("nothing that was measured depends on it; what would tell it")


def test_evaluations_are_kept_and_a_torn_line_is_not(tmp_path):
    with Evaluations(tmp_path, "q") as first:
        first.keep({"a": 0.1}, 0.5)
        first.keep({"a": 0.2}, 0.25)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-3])
    with Evaluations(tmp_path, "q") as second:
        assert (second.known({"a": 0.1}), second.known({"a": 0.2})) == (0.5, None)
        second.keep({"a": 0.2}, 0.25)
    with Evaluations(tmp_path, "q") as third:
        assert third.known({"a": 0.2}) == 0.25
    with pytest.raises(InputErrors, match="evaluations of another question"), Evaluations(tmp_path, "other"):
        pass
    path.write_text("x\n")
    with pytest.raises(InputErrors, match="damaged"), Evaluations(tmp_path, "q"):
        pass
