"""Where the time of one request went: it sums to its latency exactly."""
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.fakes import MS, legs_of
from results.reports.made import blocks_of, lay_down
from simulator.domain import records
from simulator.domain.columns import REQUESTS
from simulator.errors import InputErrors
from simulator.results.load import load_results
from simulator.results.reports.waterfall import MARKS, phases_of, waterfall


def result_of(legs=None, **times_ns):
    """Return a result of one request with these instants."""
    row = np.zeros(1, [(name, "i8") for name in ("arrival_ns", *(mark for mark, _ in MARKS))])
    for name in row.dtype.names:
        row[name] = times_ns.get(name, -1)
    return Bare(row, legs)


class Bare:
    """A result of some requests, with legs or without."""

    def __init__(self, requests, legs):
        self.request, self._legs = requests.__getitem__, legs

    def num_rows(self, table):
        return None if self._legs is None else len(self._legs)

    def column_blocks(self, table, names):
        return blocks_of(self._legs, names, 1)


def test_phases_follow_the_instants_of_a_request(tmp_path):
    # came at 0, enqueued at 1, scheduled at 2, first token at 10, done at 40 ms
    result = load_results(lay_down(tmp_path / "a"))

    assert [(phase.name, phase.start_ns // MS, phase.end_ns // MS) for phase in phases_of(result, 0)] == [
        ("gateway: on the way", 0, 1), ("queue", 1, 2), ("prefill", 2, 10), ("decode", 10, 40)]
    assert "sum to its E2EL of 40.000000 ms" in waterfall(result, "0").says


def test_a_request_that_did_not_complete_ends_at_its_last_instant(tmp_path):
    result = load_results(lay_down(tmp_path / "a"))

    assert [phase.name for phase in phases_of(result, 2)] == ["queue", "prefill"]     # 10 to 35, 35 to 50 ms
    assert phases_of(result, 5) == []
    assert "last known instant is 40.000000 ms later" in waterfall(result, "2").says
    assert "nothing more is known" in waterfall(result, "4").says


def test_time_between_a_failure_and_the_next_start_is_an_interruption():
    legs = legs_of([(0, 0, 0, 0, 30, "retried"), (0, 1, 40, 40, 90, "completed")])
    legs["scheduled_ns"] = [5 * MS, 50 * MS]
    result = result_of(legs, arrival_ns=0, enqueued_ns=0, scheduled_ns=5 * MS, first_token_ns=10 * MS,
                       completed_ns=90 * MS)

    assert [(phase.name, phase.end_ns // MS) for phase in phases_of(result, 0)] == [
        ("queue", 5), ("prefill", 10), ("decode", 30), ("interrupted", 50), ("decode", 90)]


def test_a_hand_over_shows_its_transfer():
    result = result_of(arrival_ns=0, enqueued_ns=1, scheduled_ns=2, prefill_done_ns=10, transfer_start_ns=12,
                       transfer_end_ns=20, first_token_ns=25, completed_ns=40)

    assert [(phase.name, phase.end_ns) for phase in phases_of(result, 0)] == [
        ("gateway: on the way", 1), ("queue", 2), ("prefill", 10), ("transfer: waiting", 12), ("transfer", 20),
        ("decode", 40)]


@given(st.dictionaries(st.sampled_from([mark for mark, _ in MARKS]), st.integers(0, 10**12)),
       st.integers(10**6, 10**12), st.integers(0, 10**6))
def test_phases_sum_to_e2el_whatever_the_instants(times_ns, completed_ns, arrival_ns):
    result = result_of(**times_ns | {"arrival_ns": arrival_ns, "completed_ns": completed_ns})

    phases = phases_of(result, 0)

    assert sum(phase.end_ns - phase.start_ns for phase in phases) == completed_ns - arrival_ns
    assert all(one.end_ns == other.start_ns for one, other in pairwise(phases))


def test_an_unknown_request_is_refused(tmp_path):
    result = load_results(lay_down(tmp_path / "a"))

    with pytest.raises(InputErrors, match=r"--request: no request '77'; there are 6, 0 first"):
        waterfall(result, "77")
    with pytest.raises(InputErrors, match="no request 'x'"):
        waterfall(result, "x")


def test_the_marks_are_columns():
    assert {mark for mark, _ in MARKS} <= REQUESTS.keys()
    assert {"moved", "retried"} <= set(records.LEG_ENDS)
