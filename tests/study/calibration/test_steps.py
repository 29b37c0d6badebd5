"""What iterations tell, by hand."""
import numpy as np
import pytest

from simulator.errors import InputErrors
from simulator.study.calibration.calibrate_table import FitKey
from simulator.study.calibration.data import Steps
from simulator.study.calibration.steps import PRICES, Problem, gap_us, gaps_us, predicted_us, problem_of, solved
from simulator.study.measured.record import STEP_COLUMNS

pytest.importorskip("scipy", reason="the extra `fit`")

BASE, SEQUENCE, PREFILL, DECODE, CONTEXT = PRICES
NOTHING = dict.fromkeys(PRICES, 0.0)


def steps_of(**columns):
    count = len(next(iter(columns.values())))
    known = {name: np.array(columns[name], float) if name in columns else np.full(count, np.nan)
             for name in STEP_COLUMNS}
    return Steps("steps.csv", known, np.zeros(count, bool))


def problem(counts, duration, lows=0.0, highs=1e6, priors=np.nan, sds=np.nan):
    counts = np.array(counts, float)
    k = counts.shape[1]
    return Problem(counts, np.zeros(len(counts)), np.array(duration, float),
                   *(np.broadcast_to(np.asarray(each, float), k).copy() for each in (lows, highs, priors, sds)))


def test_exact_durations_give_their_prices():
    # 10 + 2 x sequences + 3 x prompt tokens, ms
    steps = steps_of(num_sequences=[1, 2, 3, 4], prefill_tokens=[5, 0, 0, 2], duration_s=[0.027, 0.014, 0.016, 0.024])
    fit = {key: FitKey(min=0.0, max=1e6) for key in (BASE, SEQUENCE, PREFILL)}

    assert solved(problem_of([(steps, NOTHING)], fit)) == pytest.approx([10_000, 2_000, 3_000])


def test_prices_that_are_not_fitted_are_taken_off_first():
    steps = steps_of(num_sequences=[1, 2, 3], prefill_tokens=[5, 0, 0], duration_s=[0.027, 0.014, 0.016])
    fit = {SEQUENCE: FitKey(min=0.0, max=1e6)}

    (price,) = solved(problem_of([(steps, NOTHING | {BASE: 10_000.0, PREFILL: 3_000.0})], fit))
    assert price == pytest.approx(2_000)
    assert predicted_us(steps, NOTHING | {BASE: 10_000.0, SEQUENCE: price, PREFILL: 3_000.0}) == pytest.approx(
        [27_000, 14_000, 16_000])


def test_errors_are_relative():
    # one price for 100 and for 1000: least (1 - p/100)^2 + (1 - p/1000)^2 is p = (0.01 + 0.001) / (0.0001 + 0.000001)
    (price,) = solved(problem([[1], [1]], [100, 1000]), has_huber=False)
    assert price == pytest.approx(0.011 / 0.000101)


def test_prices_stay_within_their_bounds():
    assert solved(problem([[1, 1], [1, 2]], [10, 5]), has_huber=False)[1] == 0.0       # it would be -5
    assert solved(problem([[1], [1]], [100, 100], highs=80.0), has_huber=False) == pytest.approx([80.0])
    assert solved(problem([[1], [1]], [100, 100], lows=120.0), has_huber=False) == pytest.approx([120.0])


def test_hubers_weights_hold_an_outlier_down():
    durations = np.append(np.linspace(99, 101, 101), 50.0)
    counts = np.ones((102, 1))

    plain, robust = (solved(problem(counts, durations), has_huber=each)[0] for each in (False, True))
    # (101 / 100 + 1 / 50) / (101 / 100^2 + 1 / 50^2) = 98.1
    assert plain == pytest.approx(98.1, abs=0.05)
    assert robust == pytest.approx(100.0, abs=0.25)


def test_a_prior_decides_where_the_data_do_not():
    # two keys with equal counts: any split of 100 fits as well
    counts, durations = np.ones((50, 2)), np.tile([99.0, 101.0], 25)
    found = solved(problem(counts, durations, priors=[30.0, np.nan], sds=[1.0, np.nan]))

    assert found[0] == pytest.approx(30.0, abs=0.1) and found.sum() == pytest.approx(100.0, abs=0.2)


def test_a_prior_gives_way_to_many_data():
    rng = np.random.default_rng(1)
    durations = 100.0 * (1 + 0.05 * rng.standard_normal(10_000))
    (found,) = solved(problem(np.ones((10_000, 1)), durations, priors=[50.0], sds=[10.0]))

    assert found == pytest.approx(100.0, abs=1.0)


def test_the_gap_lies_between_an_end_and_the_next_begin():
    steps = steps_of(start_s=[0.0, 0.0102, 0.0304, 1.0], duration_s=[0.010, 0.020, 0.010, 0.010])

    gaps = gaps_us(steps)
    assert gaps[:3] == pytest.approx([200, 200, 959_600]) and np.isnan(gaps[3])
    assert gap_us(gaps, FitKey(min=0.0, max=1e5)) == pytest.approx(200)
    assert gap_us(gaps, FitKey(min=0.0, max=150.0)) == 150.0
    with pytest.raises(InputErrors, match="iterations have no times"):
        gap_us(gaps_us(steps_of(duration_s=[0.01, 0.01])), FitKey(min=0.0, max=1e5))


def test_a_count_that_was_not_measured_is_named():
    steps = steps_of(num_sequences=[1, 2], prefill_tokens=[5, 0], duration_s=[0.027, 0.014])
    with pytest.raises(InputErrors, match="context_tokens: not measured, which latency"):
        problem_of([(steps, NOTHING)], {CONTEXT: FitKey(min=0.0, max=1.0)})
