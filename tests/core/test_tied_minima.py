"""The tree of minima that counts ties."""
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.core_faces import TiedMinima

KEYS = st.sampled_from([0.0, 1.0, 2.5, 7.0, math.inf])


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 19), KEYS), max_size=60))
def test_it_knows_the_least_and_all_that_have_it(size, changes):
    tree, keys = TiedMinima(size), [math.inf] * size
    for index, key in changes:
        tree.set_key(index % size, key)
        keys[index % size] = key
        tree.check()

        least, tied = tree.all_tied()

        assert least == min(keys)
        if least < math.inf:
            assert tied == [i for i in range(size) if keys[i] == least]


@given(st.lists(KEYS, min_size=1, max_size=20), st.integers(0, 19))
def test_it_finds_the_next_that_has_the_least_going_round(keys, first):
    tree, first = TiedMinima(len(keys)), first % len(keys)
    for index, key in enumerate(keys):
        tree.set_key(index, key)
    expected = min(range(len(keys)), key=lambda index: (keys[index], (index - first) % len(keys)))

    if min(keys) < math.inf:
        assert tree.next_tied(first) == expected


@pytest.mark.parametrize("size", [0, -1, 2**24 + 1])
def test_a_size_that_makes_no_sense_is_refused(size):
    with pytest.raises(ValueError, match="size must be"):
        TiedMinima(size)


def test_an_index_outside_is_refused():
    with pytest.raises(ValueError, match="index 3 of 3"):
        TiedMinima(3).set_key(3, 0.0)
