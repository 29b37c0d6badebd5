"""Requests and tokens, seen in blocks of rows."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.fakes import small_run
from results.reports.made import counted
from simulator.domain import records
from simulator.results.figures.decimate import quantiles
from simulator.results.request_passes import Gaps, Requests, Sample
from simulator.results.slo import completed_of, latencies_ms

DTYPE = np.dtype([(name, "i8") for name in ("arrival_ns", "enqueued_ns", "scheduled_ns", "first_token_ns",
                                            "completed_ns")]
                 + [("output_tokens", "i4"), ("status", "i1"), ("cause", "i1"), ("measured", "i1")])


def drawn(count, seed=0):
    """Return requests of which some are done, some have no token, some do not count."""
    draw = np.random.default_rng(seed)
    rows = np.zeros(count, DTYPE)
    times_ns = np.cumsum(draw.integers(0, 10**9, (5, count)), axis=0)
    for name, column in zip(DTYPE.names[:5], times_ns, strict=True):
        rows[name] = column
    rows["output_tokens"], rows["status"] = draw.integers(0, 4, count), draw.integers(2, 5, count)
    rows["cause"], rows["measured"] = draw.integers(0, 3, count), draw.random(count) < 0.8
    rows["first_token_ns"][rows["output_tokens"] == 0] = -1
    return rows


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("count", [0, 1, 700])
def test_what_is_found_is_what_the_whole_table_holds(count, size):
    rows = drawn(count)
    found, counting = counted(rows, size=size, ttft_ms=1500.0), rows[rows["measured"] == 1]
    completed = completed_of(counting)

    assert found.statuses.tolist() == np.bincount(counting["status"], minlength=len(records.STATUS_NAMES)).tolist()
    assert found.causes.tolist() == np.bincount(counting["cause"], minlength=len(records.CAUSE_NAMES)).tolist()
    assert found.longest_wait_ns == (counting["scheduled_ns"] - counting["enqueued_ns"]).max(initial=0)
    assert found.completions()[1].sum() * (found.completions()[0][1] - found.completions()[0][0]) == len(completed)
    for key, sample in found.samples.items():
        values_ms = latencies_ms(key, completed)
        assert len(sample) == len(values_ms)
        if len(sample):
            assert [each.tolist() for each in sample.quantiles()] == [each.tolist() for each in quantiles(values_ms)]
    assert found.samples["ttft_ms"].num_within == (latencies_ms("ttft_ms", completed) <= 1500).sum()


def test_a_table_without_causes_or_a_window_is_counted_whole():
    requests = small_run().workload.requests
    found = counted(requests)

    assert (len(found), found.causes.sum()) == (len(requests), 0)


def test_latencies_that_nobody_wants_are_not_looked_at():
    rows = drawn(20)
    found = Requests(lambda: [{name: rows[name] for name in DTYPE.names if name != "enqueued_ns"}
                              | {"enqueued_ns": rows["scheduled_ns"]}], {}, keys=["ttft_ms"])

    assert found.samples.keys() == {"ttft_ms"}


@given(st.lists(st.lists(st.integers(0, 50), max_size=4), max_size=8), st.integers(1, 6))
def test_gaps_are_within_requests(tokens, size):
    times_ns = np.array([time for times in tokens for time in sorted(times)], np.int64)
    offsets = np.concatenate(([0], np.cumsum([len(times) for times in tokens]))).astype(np.int64)
    expected = sorted(gap for times in tokens for gap in np.diff(sorted(times)).tolist())
    blocks = [times_ns[first:first + size] for first in range(0, len(times_ns), size)]

    sample = Gaps(lambda: blocks, offsets).sample

    assert len(sample) == len(expected)
    assert not expected or (sample.quantiles()[0][[0, -1]] * 1e6).round().tolist() == [expected[0], expected[-1]]


def test_a_sample_counts_those_that_keep_the_bound_once():
    sample = Sample(10.0)
    for _ in range(2):
        sample.take(np.array([9.0, 10.0, 11.0]))
        sample.end_pass()

    assert (len(sample), sample.num_within) == (3, 2)
