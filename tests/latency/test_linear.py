"""`linear`: exact nanoseconds, rounded once."""
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.latency.linear import Linear

COUNTS = st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 100_000)), max_size=5)
CONTEXTS = st.lists(st.integers(1, 100_000), max_size=20)


def linear(resolution_us=0.0, host_us=0.0, **parameters):
    model = Linear(Linear.Parameters(**parameters))
    model.set_host(host_us, resolution_us)
    return model


def test_each_price_is_paid_for_what_it_names():
    # 5000 + 10 x 4 sequences + 20 x (100 + 30) prompt tokens + 7 x 2 decode tokens + 0.05 x (40 + 60) context tokens
    # = 5000 + 40 + 2600 + 14 + 5 = 7659 us
    model = linear(per_decode_token_us=7.0)

    assert model.predict_iteration_ns(prefill=[(100, 0), (30, 900)], decode=[40, 60]) == 7_659_000


def test_drafts_are_decode_tokens():
    # 3 us x 4 tokens for one sequence
    model = linear(base_us=0.0, per_sequence_us=0.0, per_context_token_us=0.0, per_decode_token_us=3.0)

    assert model.predict_iteration_ns(decode=[10], tokens_per_decode=4) == 12_000


def test_a_breakdown_tells_what_each_price_adds():
    # as above: 5000 + 40 + 2600 + 14 + 5 us
    found = linear(per_decode_token_us=7.0).breakdown(prefill=[(100, 0), (30, 900)], decode=[40, 60])

    assert found == pytest.approx(
        {"base": 5000e-6, "sequences": 40e-6, "prefill": 2600e-6, "decode": 14e-6, "context": 5e-6})


@given(COUNTS, CONTEXTS, st.integers(1, 5))
def test_a_breakdown_adds_up(prefill, decode, tokens_per_decode):
    if not prefill and not decode:
        return
    model, batch = linear(per_decode_token_us=7.0), (prefill, decode, tokens_per_decode)

    assert sum(model.breakdown(*batch).values()) == pytest.approx(model.predict(*batch), rel=1e-12)


def test_half_nanoseconds_round_to_the_nearest():
    # 0.0124 us x 1000 prompt tokens + 0.1004 us = 12.5004 us = 12,500.4 ns
    model = linear(base_us=0.1004, per_sequence_us=0.0, per_prefill_token_us=0.0124)

    assert model.predict_iteration_ns(prefill=[(1000, 0)]) == 12_500


def test_resolution_truncates_to_whole_steps():
    # 5000 + 10 + 0.05 x 39 = 5011.95 us
    assert linear(resolution_us=1.0).predict_iteration_ns(decode=[39]) == 5_011_000


def test_resolution_is_applied_to_the_sum_with_host_time():
    # 5011.95 + 0.05 = 5012 us: host time lifts it over the edge
    assert linear(resolution_us=1.0, host_us=0.05).predict_iteration_ns(decode=[39]) == 5_012_000


def test_an_iteration_takes_at_least_one_nanosecond():
    assert linear(base_us=0.0, per_sequence_us=0.0, per_context_token_us=0.0).predict_iteration_ns(decode=[1]) == 1


def test_an_iteration_takes_at_least_one_step_of_the_resolution():
    model = linear(resolution_us=2.0, base_us=0.3, per_sequence_us=0.0)

    assert model.predict_iteration_ns(decode=[1]) == 2_000


def test_prediction_in_seconds_is_the_accelerators_time_alone():
    # 5000 + 10 + 0.05 x 100 us, whatever the host does
    assert linear(host_us=300.0, resolution_us=1.0).predict(decode=[100]) == pytest.approx(5015e-6, rel=1e-12)


@given(COUNTS, CONTEXTS)
def test_duration_is_the_formula(prefill, decode):
    if not prefill and not decode:
        return
    expected_us = 5000 + 10 * (len(prefill) + len(decode)) + 20 * sum(n for n, _ in prefill) + 0.05 * sum(decode)

    assert linear().predict_iteration_ns(prefill, decode) == pytest.approx(expected_us * 1e3, abs=0.5001)


def test_a_formula_has_nothing_to_tell_of_its_predictions():
    model = linear()
    model.predict(decode=[5])

    assert (model.provenance(), model.warnings(), model.host_terms(), model.takes_collective) == ({}, [], {}, False)


@pytest.mark.parametrize("batch", [
    {}, {"prefill": [(0, 5)]}, {"prefill": [(5, -1)]}, {"decode": [0]}, {"decode": [5], "tokens_per_decode": 0}])
def test_a_batch_that_cannot_be_is_refused(batch):
    with pytest.raises(ValueError, match=r"expected|needs"):
        linear().predict(**batch)


def test_a_negative_price_is_refused():
    with pytest.raises(msgspec.ValidationError, match=r">= 0\.0"):
        msgspec.convert({"per_sequence_us": -1.0}, Linear.Parameters)
