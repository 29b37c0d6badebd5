"""Who comes next while a server outside answers: the rules of `run`, with times of a clock on the wall."""
import numpy as np
import pytest

from simulator.domain import records
from simulator.engine.sources.live import Live
from support.scripts import MS, loop, plays, scripted
from support.workloads import plain_workload


def test_requests_with_times_come_in_their_order():
    source = Live(plain_workload([10 * MS, 30 * MS], 5, 2))

    assert (source.next_ns, source.is_fixed, source.num_left) == (10 * MS, True, 2)
    assert source.take() == 0
    source.ended(0, records.COMPLETED, 70 * MS)
    assert source.next_ns == 30 * MS
    assert source.take() == 1
    assert (source.next_ns, source.num_left) == (None, 0)


def test_a_closed_loop_waits_for_the_end_of_a_request():
    # three requests, two slots: the third comes when the first of the others has ended
    source = Live(scripted([5, 5, 5], loop(3, 2)))

    assert [source.take(), source.take()] == [0, 1]
    assert (source.next_ns, source.num_left) == (None, 1)
    source.ended(1, records.COMPLETED, 40 * MS)
    assert source.next_ns == 40 * MS
    assert source.take() == 2


def test_a_turn_comes_so_long_after_the_answer_before_it():
    workload = scripted([5, 5], plays([2], [(0, 1, "end", 25)]))
    source = Live(workload)
    source.take()
    source.ended(0, records.COMPLETED, 100 * MS)

    assert source.next_ns == 125 * MS


def test_a_turn_does_not_come_after_a_failure():
    workload = scripted([5, 5], plays([2], [(0, 1, "end", 25)]))
    source = Live(workload)
    source.take()
    source.ended(0, records.FAILED, 100 * MS)

    assert (source.next_ns, source.num_left) == (None, 0)
    assert workload.requests["status"].tolist() == [records.FAILED, records.NOT_SENT]


def test_the_end_of_what_does_not_run_is_refused():
    source = Live(plain_workload(np.arange(2), 5, 2))

    for row in (-1, 0, 2):
        with pytest.raises(ValueError, match=f"request {row} does not run"):
            source.ended(row, records.COMPLETED, 1)
    source.take()
    with pytest.raises(ValueError, match="no status with which a request ends: 2"):
        source.ended(0, records.RUNNING, 1)


def test_nobody_is_taken_where_nobody_is_known_to_come():
    source = Live(scripted([5, 5], loop(2, 1)))
    source.take()

    with pytest.raises(ValueError, match="no request is known to come"):
        source.take()
