from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.core.draws import Draws

# The first outputs of SplitMix64 from this state. Source: Rosetta Code, Pseudo-random numbers/Splitmix64.
STATE, OUTPUTS = 1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]


def draws_from(state):
    return Draws(SimpleNamespace(integers=lambda *_, **__: state))


def test_uniform_numbers_are_the_upper_53_bits_of_splitmix64():
    draws = draws_from(STATE)
    assert [draws.next_uniform() for _ in OUTPUTS] == [(bits >> 11) / 2**53 for bits in OUTPUTS]


def test_integers_are_the_remainders_of_splitmix64():
    draws = draws_from(STATE)
    assert [draws.next_below(1000) for _ in OUTPUTS] == [317, 973, 423]


@given(state=st.integers(0, 2**64 - 1), count=st.integers(1, 2**31 - 1))
def test_draws_stay_in_their_range(state, count):
    draws = draws_from(state)
    assert 0.0 <= draws.next_uniform() < 1.0
    assert 0 <= draws.next_below(count) < count


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_counts_that_leave_nothing_to_draw_are_refused(count):
    with pytest.raises(ValueError, match="count must be"):
        draws_from(STATE).next_below(count)


def test_words_given_instead_are_drawn_in_turn_and_then_again():
    draws = Draws.replaying([7, 2**63, 5])
    assert [draws.next_below(4), draws.next_uniform(), draws.next_below(3), draws.next_below(4)] == [3, 0.5, 2, 3]
    assert draws.num_replayed == 4


def test_no_words_to_draw_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        Draws.replaying([])
