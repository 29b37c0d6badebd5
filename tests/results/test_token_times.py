"""Times of tokens, regrouped by request."""
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.fakes import MS, SMALL_REQUESTS, requests_of, tokens_of, workload_of
from simulator.results import memory, token_times
from simulator.results.token_times import TokenTimes

MESSAGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5), st.integers(1, 3)), max_size=60)
ROOM = st.lists(st.integers(0, 12), min_size=6, max_size=6)


@settings(max_examples=60, deadline=None)
@given(MESSAGES, st.integers(1, 20), st.integers(1, 30), ROOM, st.booleans())
def test_every_token_comes_back_once_in_order_of_time(messages, chunk, slice_tokens, most, in_files):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_times, "SLICE_TOKENS", slice_tokens)
        patch.setattr(token_times, "SLICE_TOKENS_IN_MEMORY", slice_tokens)
        collected = TokenTimes(np.array(most), tempfile.gettempdir() if in_files else None)
        for first in range(0, len(messages), chunk):
            collected.append(tokens_of(*messages[first:first + chunk]))
        offsets = collected.offsets()
        times_ns = np.concatenate([np.empty(0, np.int64), *collected.slices()])
        collected.close()

    for request in range(6):
        expected = sorted(time_ms * MS for time_ms, owner, n in messages for _ in range(n) if owner == request)
        assert times_ns[offsets[request]:offsets[request + 1]].tolist() == expected


def test_times_come_in_slices_of_whole_requests(monkeypatch, tmp_path):
    monkeypatch.setattr(token_times, "SLICE_TOKENS", 3)
    collected = TokenTimes(np.array([2, 1, 5, 1]), tmp_path)
    collected.append(tokens_of((1, 0, 2), (2, 1, 1), (3, 2, 5), (4, 3, 1)))

    sizes = [len(part) for part in collected.slices()]

    collected.close()
    assert sizes == [3, 5, 1]       # requests 0 and 1 fit into a slice, 2 is larger than one


def test_tokens_of_a_request_that_began_anew_are_all_kept():
    # two are known to come; it fails after one and gets both again
    collected = TokenTimes(np.array([1, 2]))
    collected.append(tokens_of((1, 1, 1), (2, 0, 1), (4, 1, 1), (5, 1, 1)))

    assert collected.offsets().tolist() == [0, 1, 4]
    assert np.concatenate(list(collected.slices())).tolist() == [2 * MS, 1 * MS, 4 * MS, 5 * MS]


def test_the_times_of_a_single_slice_are_not_copied():
    collected = TokenTimes(np.array([2]))
    collected.append(tokens_of((1, 0, 2)))
    [times_ns] = collected.slices()

    assert memory.joined([times_ns]) is times_ns
    assert memory.joined([]).tolist() == []


def test_room_is_what_clients_ask_for_at_most():
    workload = workload_of(requests_of(SMALL_REQUESTS[:2]))
    workload.demands["max_tokens"], workload.outcomes["output_tokens"] = [5, 9], [7, 3]

    assert token_times.most_tokens(workload).tolist() == [5, 3]
