"""Ranks, medians and percentiles of numbers that are not held are those of NumPy."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.results import ranked
from simulator.results.ranked import Counted, Ranked, in_passes, median, middle, percentiles_of

FLOATS = st.lists(st.one_of(st.floats(-1e9, 1e9), st.sampled_from([0.0, 1e-6, 5e-324, -5e-324, 20.5, 20.500001])),
                  max_size=60)
SOME = (10, 50, 90)


def blocks(values, size):
    return lambda: (values[first:first + size] for first in range(0, len(values), size))


@pytest.fixture(params=[(1 << 21, 1 << 16, 1 << 20), (3, 2, 1 << 20), (3, 4, 1)], ids=["roomy", "narrow", "far apart"])
def room(request, monkeypatch):
    for name, value in zip(("MOST_KEPT", "MOST_BINS", "WIDEST"), request.param, strict=True):
        monkeypatch.setattr(ranked, name, value)


@given(values=FLOATS, size=st.integers(1, 9))
@pytest.mark.usefixtures("room")
def test_every_rank_is_that_of_the_sorted_values(values, size):
    values = np.array(values, float)
    found = Ranked(np.arange)
    in_passes(blocks(values, size), found)

    assert found.count == len(values)
    assert not len(values) or found.at(np.arange(len(values))).tolist() == np.sort(values).tolist()


@given(values=FLOATS.filter(bool), size=st.integers(1, 9))
@pytest.mark.usefixtures("room")
def test_medians_are_those_of_numpy(values, size):
    found = Ranked(middle)
    in_passes(blocks(np.array(values), size), found)

    assert median(found) == np.median(values)


@pytest.mark.parametrize("draw", [
    lambda dice: dice.lognormal(3, 1, 300_000), lambda dice: 20 + 20 * dice.random(300_000),
    lambda dice: np.where(dice.random(300_000) < 0.9, 0, dice.random(300_000)), lambda dice: np.full(300_000, 7.25)])
def test_many_values_need_few_passes_and_little_memory(draw, monkeypatch):
    monkeypatch.setattr(ranked, "MOST_KEPT", 1 << 14)
    values = draw(np.random.default_rng(3))
    found, wanted = Ranked(lambda count: np.linspace(0, count - 1, 1001).astype(int)), np.linspace(0, 299_999, 1001)
    num_passes = kept = 0
    while not found.is_done:
        for block in blocks(values, 1 << 14)():
            found.take(block)
        kept = max(kept, sum(map(len, found._kept or ())))
        found.end_pass()
        num_passes += 1

    assert found.at(wanted.astype(int)).tolist() == np.sort(values)[wanted.astype(int)].tolist()
    assert (num_passes <= 4, kept <= 1 << 14) == (True, True)


@given(st.lists(st.one_of(st.integers(0, 9), st.integers(0, 1 << 40)), min_size=1, max_size=60), st.integers(1, 9))
@pytest.mark.usefixtures("room")
def test_percentiles_of_counted_numbers_are_those_of_numpy(numbers, size):
    numbers = np.array(numbers)
    found = Counted()
    for block in blocks(numbers, size)():
        found.take(block)

    assert percentiles_of(*found.found(), SOME).tolist() == np.percentile(numbers, SOME).tolist()
