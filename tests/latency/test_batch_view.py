"""Batches made by hand: the sums that an engine would keep."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.latency.batch_view import BatchView
from simulator.latency.linear import Linear
from simulator.latency.roofline.model import Roofline
from support.small_models import deploy


def test_a_chunk_ends_its_prompt_unless_the_prompt_is_longer():
    batch = BatchView(prefill=[(10, 5), (10, 5, 15), (10, 5, 16)], decode=[7])

    assert batch.chunks == [(10, 5, 15), (10, 5, 15), (10, 5, 16)]
    assert (batch.num_sequences, batch.num_chunks, batch.num_samples) == (4, 3, 3)


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 100), st.integers(0, 2)), min_size=1, max_size=6))
def test_samples_are_the_chunks_that_end_their_prompts(chunks):
    batch = BatchView(prefill=[(tokens, context, tokens + context + more) for tokens, context, more in chunks])

    assert batch.num_samples == sum(more == 0 for _, _, more in chunks)
    assert batch.prefill_tokens == sum(tokens for tokens, _, _ in chunks)


@pytest.mark.parametrize("chunk", [(10, 5, 14), (10, 0, 0)])
def test_a_prompt_that_ends_before_its_chunk_is_refused(chunk):
    with pytest.raises(ValueError, match=r"prefill: expected prompt_tokens >= 10 \+ [05], found (14|0)"):
        Linear(Linear.Parameters()).predict(prefill=[chunk])


@pytest.mark.parametrize("chunk", [(10,), (10, 5, 20, 1)])
def test_a_chunk_of_other_than_two_or_three_numbers_is_refused(chunk):
    with pytest.raises(ValueError, match=r"expected \(tokens, context\) or .* found \(10,"):
        BatchView(prefill=[chunk])


def test_an_unfinished_chunk_samples_no_token():
    model = Roofline(Roofline.Parameters(), deploy())

    assert model.breakdown(prefill=[(10, 0, 20)])["sampler"] == 0.0 < model.breakdown(prefill=[(10, 0)])["sampler"]
