"""Distributions of lengths. Statistics use fixed seeds and bounds of many standard errors."""
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputErrors
from simulator.workload.drawing import lengths, recorded
from simulator.workload.drawing.empirical import Empirical
from simulator.workload.drawing.lengths import weighted_ranks, zipf_ranks

N = 100_000


def draw(kind, count=N, seed=1, **parameters):
    return kind(kind.Parameters(**parameters)).draw(np.random.default_rng(seed), count)


def test_constant_is_constant():
    assert draw(lengths.Constant, 3, tokens=7).tolist() == [7, 7, 7]


def test_no_tokens_at_all_may_be_asked_for():
    assert draw(lengths.Constant, 2, tokens=0).tolist() == [0, 0]


def test_uniform_reaches_both_ends_equally():
    drawn = draw(lengths.Uniform, min=3, max=6)

    # each of the four is binomial(100000, 1/4): standard deviation 137
    assert np.bincount(drawn)[3:].tolist() == pytest.approx([N / 4] * 4, abs=1000)


def test_normal_has_its_mean_and_deviation():
    drawn = draw(lengths.Normal, mean=1000.0, std=50.0)

    assert drawn.mean() == pytest.approx(1000, abs=2)
    assert drawn.std() == pytest.approx(50, rel=0.02)


def test_what_lies_outside_moves_to_the_nearer_end():
    drawn = draw(lengths.Normal, mean=100.0, std=50.0, min=100, max=150)

    # half of the draws lie below the mean, 15.9 % more than one deviation above it
    assert (drawn.min(), drawn.max()) == (100, 150)
    assert np.mean(drawn == 100) == pytest.approx(0.5, abs=0.02)
    assert np.mean(drawn == 150) == pytest.approx(0.159, abs=0.02)


def test_lognormal_has_the_mean_and_deviation_of_the_lengths():
    drawn = draw(lengths.Lognormal, mean=1000.0, std=800.0)

    assert drawn.mean() == pytest.approx(1000, rel=0.02)
    assert drawn.std() == pytest.approx(800, rel=0.05)
    # the median of a log-normal is mean / sqrt(1 + (std / mean)**2)
    assert np.median(drawn) == pytest.approx(1000 / math.sqrt(1.64), rel=0.02)


def test_exponential_has_its_mean():
    drawn = draw(lengths.Exponential, mean=200.0, min=0)

    assert drawn.mean() == pytest.approx(200, rel=0.02)
    assert np.mean(drawn > 200) == pytest.approx(math.exp(-1), abs=0.02)


def test_zipf_weighs_by_rank():
    drawn = draw(lengths.Zipf, min=10, max=12, exponent=2.0)

    # 1 : 1/4 : 1/9 = 36 : 9 : 4
    assert np.bincount(drawn)[10:].tolist() == pytest.approx([N * 36 / 49, N * 9 / 49, N * 4 / 49], abs=1000)


def test_empirical_draws_by_weight():
    drawn = draw(Empirical, values=(5, 50, 500), weights=(1.0, 0.0, 3.0))

    assert set(drawn.tolist()) == {5, 500}
    assert np.mean(drawn == 500) == pytest.approx(0.75, abs=0.01)


def test_empirical_draws_equally_without_weights():
    assert np.mean(draw(Empirical, values=(0, 1)) == 1) == pytest.approx(0.5, abs=0.01)


def test_empirical_reads_a_column(tmp_path):
    (tmp_path / "l.csv").write_text("name,length\na,5\nb,7\n")

    drawn = draw(Empirical, 1000, path=str(tmp_path / "l.csv"), column="length")

    assert set(drawn.tolist()) == {5, 7}


def test_empirical_names_what_is_wrong_with_its_file(tmp_path):
    path = tmp_path / "l.csv"
    path.write_text("length\n5\n-7\n")

    with pytest.raises(InputErrors) as caught:
        draw(Empirical, path=str(path), column="length")
    assert caught.value.faults == (f'{path}:3: length: expected an integer >= 0, found "-7"',)


@pytest.mark.parametrize(("kind", "parameters", "message"), [
    (lengths.Constant, {"tokens": 1, "min": 3, "max": 2}, "min 3 is above max 2"),
    (lengths.Zipf, {"max": 2**24 + 1}, "from min to max are 16777217 lengths, more than 16777216"),
    (Empirical, {}, "give either values, or path and column"),
    (Empirical, {"values": (1,), "path": "x", "column": "y"}, "give either values, or path and column"),
    (Empirical, {"path": "x"}, "give column"),
    (Empirical, {"values": (1, 2), "weights": (1.0,)}, "1 weights for 2 values"),
    (Empirical, {"values": (1,), "weights": (0.0,)}, "positive, finite sum"),
])
def test_parameters_that_contradict_each_other_are_refused(kind, parameters, message):
    with pytest.raises(ValueError, match=message):
        kind.Parameters(**parameters)


KINDS = [
    (lengths.Constant, {"tokens": 70}), (lengths.Uniform, {}), (lengths.Normal, {"mean": 70.0, "std": 900.0}),
    (lengths.Lognormal, {"mean": 70.0, "std": 2e9}), (lengths.Exponential, {"mean": 70.0}), (lengths.Zipf, {}),
    (Empirical, {"values": (0, 70, 2**31 - 1)})]


@pytest.mark.parametrize(("kind", "parameters"), KINDS)
@given(bounds=st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(sorted), seed=st.integers(0, 100))
def test_draws_are_integers_within_the_bounds_and_repeat(kind, parameters, bounds, seed):
    drawn = draw(kind, 50, seed, **parameters, min=bounds[0], max=bounds[1])

    assert drawn.dtype == np.int64
    assert ((bounds[0] <= drawn) & (drawn <= bounds[1])).all()
    assert drawn.tolist() == draw(kind, 50, seed, **parameters, min=bounds[0], max=bounds[1]).tolist()


def test_an_exponent_of_zero_is_uniform():
    ranks = zipf_ranks(np.random.default_rng(1), N, 4, 0.0)

    assert np.bincount(ranks).tolist() == pytest.approx([N / 4] * 4, abs=1000)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20).filter(any), st.integers(0, 100))
def test_ranks_have_weight(weights, seed):
    ranks = weighted_ranks(np.random.default_rng(seed), 100, weights)

    assert all(weights[rank] > 0 for rank in ranks)


def test_pareto_and_lognormal_are_mixed():
    keys = {"alpha": 2.0, "xm": 1000.0, "mu": 4.0, "sigma": 0.5}
    tail = draw(lengths.ParetoLognormal, mix_weight=1.0, **keys)
    body = draw(lengths.ParetoLognormal, mix_weight=0.0, **keys)
    both = draw(lengths.ParetoLognormal, mix_weight=0.3, **keys)

    assert tail.min() == 1000
    for length in (2000, 5000, 10_000):         # (1000 / length)**2; standard errors below 0.0014
        assert np.mean(tail > length) == pytest.approx((1000 / length) ** 2, abs=0.006)
    assert body.mean() == pytest.approx(math.exp(4.125), rel=0.01)
    assert np.log(body).std() == pytest.approx(0.5, rel=0.02)
    assert np.mean(both >= 1000) == pytest.approx(0.3, abs=0.01)
    assert draw(lengths.ParetoLognormal, count=50, mix_weight=0.3, **keys).tolist() == both[:50].tolist()


def test_a_column_gives_its_lengths_in_order(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n5,x\n3,x\n9,x\n")
    path = str(tmp_path / "t.csv")

    assert draw(recorded.Lengths, 2, path=path, column="a").tolist() == [5, 3]
    assert draw(recorded.Lengths, 3, path=path, column="a", max=6).tolist() == [5, 3, 6]
    with pytest.raises(InputErrors, match=r"t\.csv: column a has 3 lengths, expected 4, one for each request"):
        draw(recorded.Lengths, 4, path=path, column="a")
