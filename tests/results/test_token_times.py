"""Times of tokens, regrouped by request."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.fakes import MS, tokens_of
from simulator.results import token_times
from simulator.results.token_times import TokenTimes

MESSAGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5), st.integers(1, 3)), max_size=60)


@settings(max_examples=60, deadline=None)
@given(MESSAGES, st.integers(1, 20), st.integers(1, 30))
def test_every_token_comes_back_once_in_order_of_time(messages, chunk, slice_tokens):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_times, "SLICE_TOKENS", slice_tokens)
        collected = TokenTimes(6)
        for first in range(0, len(messages), chunk):
            collected.append(tokens_of(*messages[first:first + chunk]))
        offsets = collected.offsets()
        times_ns = np.concatenate([np.empty(0, np.int64), *collected.slices()])
        collected.close()

    for request in range(6):
        expected = sorted(time_ms * MS for time_ms, owner, n in messages for _ in range(n) if owner == request)
        assert times_ns[offsets[request]:offsets[request + 1]].tolist() == expected


def test_times_come_in_slices_of_whole_requests(monkeypatch):
    monkeypatch.setattr(token_times, "SLICE_TOKENS", 3)
    collected = TokenTimes(4)
    collected.append(tokens_of((1, 0, 2), (2, 1, 1), (3, 2, 5), (4, 3, 1)))

    sizes = [len(part) for part in collected.slices()]

    collected.close()
    assert sizes == [3, 5, 1]       # requests 0 and 1 fit into a slice, 2 is larger than one
