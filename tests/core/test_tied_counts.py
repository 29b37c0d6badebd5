"""The order of counts that change by one."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.core_faces import TiedCounts

COUNTS = st.none() | st.integers(0, 5) | st.integers(60, 300)


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 19), COUNTS | st.sampled_from("+-")), max_size=80))
def test_it_knows_the_least_and_all_that_have_it(size, changes):
    counts, model = TiedCounts(size), [None] * size
    for number, change in changes:
        index = number % size
        if change == "+":
            counts.add_one(index)
            model[index] = None if model[index] is None else model[index] + 1
        elif change == "-":
            counts.take_one(index)
            model[index] = None if model[index] is None else max(model[index] - 1, 0)
        else:
            counts.set_count(index, change)
            model[index] = change
        counts.check()

        least, tied = counts.all_tied()

        known = [each for each in model if each is not None]
        assert least == min(known, default=None)
        assert sorted(tied) == [i for i in range(size) if known and model[i] == least]


@pytest.mark.parametrize("size", [0, -1, 2**24 + 1])
def test_a_size_that_makes_no_sense_is_refused(size):
    with pytest.raises(ValueError, match="size must be"):
        TiedCounts(size)


def test_an_index_outside_or_an_impossible_count_is_refused():
    with pytest.raises(ValueError, match="index 3 of 3"):
        TiedCounts(3).set_count(3, 0)
    with pytest.raises(ValueError, match="count -1"):
        TiedCounts(3).set_count(0, -1)
    with pytest.raises(ValueError, match="count 268435456"):
        TiedCounts(3).set_count(0, 1 << 28)
