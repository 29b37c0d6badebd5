"""Rates, shares by position and mean lengths say the same as the distribution that follows from them."""
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.acceptance import Acceptance
from simulator.scheduling.acceptance_table import AcceptanceTable, rate_of
from simulator.scheduling.speculative import SpeculativeParameters

RATE = st.floats(0, 1)
SHARES = st.lists(RATE, min_size=1, max_size=8)


def mean_length(weights):
    return 1 + sum(i * weight for i, weight in enumerate(weights)) / sum(weights)


def test_rates_by_hand():
    # 1 - 0.8 stop at the first draft, 0.8 x (1 - 0.5) at the second, and 0.8 x 0.5 x 0.5 get to the end.
    table = AcceptanceTable(rates=(0.8, 0.5))
    assert table.weights(3) == pytest.approx((0.2, 0.4, 0.2, 0.2))


def test_shares_by_position_as_vllm_logs_them():
    # Llama-3.1-8B with EAGLE-3, vLLM, tests/v1/spec_decode/test_acceptance_length.py: 2.60 with three drafts.
    table = AcceptanceTable(per_position=(0.7296, 0.5208, 0.3545))
    assert table.weights(3) == pytest.approx((0.2704, 0.2088, 0.1663, 0.3545))
    assert mean_length(table.weights(3)) == pytest.approx(2.6049)
    assert table.weights(4)[4] == pytest.approx(0.3545 * 0.3545 / 0.5208)
    assert AcceptanceTable(per_position=(0.5, 0.0)).weights(3) == pytest.approx((0.5, 0.5, 0.0, 0.0))


@given(SHARES)
def test_shares_are_products_of_rates(rates):
    shares = tuple(np.minimum.accumulate(np.cumprod(rates)))
    of_shares, of_rates = (AcceptanceTable(**{key: tuple(values)}).weights(len(rates)) for key, values in (
        ("per_position", shares), ("rates", rates)))
    np.testing.assert_allclose(of_shares, of_rates, atol=1e-12)
    np.testing.assert_allclose(1 - np.cumsum(of_rates)[:-1], np.cumprod(rates), atol=1e-12)


@given(st.integers(1, 16), RATE)
def test_a_mean_length_is_kept(num_tokens, share):
    length = 1 + share * num_tokens
    weights = AcceptanceTable(mean_length=length).weights(num_tokens)
    assert mean_length(weights) == pytest.approx(length, rel=1e-9)
    assert min(weights) >= 0


def test_the_rate_of_a_mean_length():
    assert rate_of(1.75, 2) == pytest.approx(0.5)          # 1 + 1/2 + 1/4
    assert rate_of(1.0, 5) == pytest.approx(0.0, abs=1e-12)
    assert rate_of(6.0, 5) == pytest.approx(1.0)


@pytest.mark.parametrize(("table", "num_tokens", "message"), [
    ({}, 3, "expected one of distribution, rates, per_position, mean_length, measured, found none"),
    ({"rates": [0.5], "mean_length": 2.0}, 3, "found rates and mean_length"),
    ({"per_position": [0.5, 0.6]}, 3, "expected shares that do not rise, found"),
    ({"mean_length": 4.5}, 3, "mean_length: expected at most 1 . num_tokens = 4, found 4.5"),
    ({"rates": [0.5, 0.5]}, 1, "rates: expected no more than num_tokens = 1 of them, found 2"),
    ({"per_position": [0.5, 0.5]}, 1, "per_position: expected no more than num_tokens = 1 of them, found 2"),
    ({"distribution": [0.5, 0.0, 1.0, 0.0]}, 1, "no more than num_tokens = 1 drafts can be accepted, found 2")])
def test_what_cannot_be_is_refused(table, num_tokens, message):
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert({"num_tokens": num_tokens, "acceptance": table}, SpeculativeParameters)


def test_draws_have_the_rates():
    rates, steps = np.array([0.9, 0.6, 0.3]), 200_000
    acceptance = Acceptance(None, AcceptanceTable(rates=tuple(rates)).weights(3), 1, 1234)
    drawn = np.array([acceptance.accepted_drafts(0, step) for step in range(steps)])
    for i, rate in enumerate(rates):
        tried = (drawn >= i).sum()
        assert abs((drawn > i).sum() / tried - rate) < 5 * np.sqrt(rate * (1 - rate) / tried)       # five sigma
