"""Whole runs of Vidur under its schedulers, with times from its own tables: every batch, every request."""
from collections import Counter

import pytest

from simulator.domain import records
from support import vidur

CASES = vidur.cases()
RUNS = [pytest.param(case, replica, id=f"{case}-{replica}") for case in CASES for replica in range(case.num_replicas)]
NS = 1e-9                   # times of stages are rounded to whole ones, and add up

pytestmark = pytest.mark.skipif(not CASES, reason="needs ../shared/goldens/vidur")


def census():
    """Return how many runs were recorded, and why how many of them are left out."""
    return len(CASES), Counter(reason for case in CASES if (reason := case.obstacle()))


def replay(case, replica):
    """Return the rows of a replica, our recording of it, and its steps that computed something."""
    if obstacle := case.obstacle():
        pytest.skip(obstacle)
    recording = case.play(replica)
    return case.rows_of(replica), recording, [step for step in recording.steps if step["scheduled"]]


@pytest.mark.parametrize(("case", "replica"), RUNS)
def test_batches_and_requests_are_those_recorded(case, replica):
    rows, recording, steps = replay(case, replica)
    recorded = case.batches_of(replica)
    slack_s = 2 * NS * len(recorded)

    assert recorded and len(steps) >= len(recorded)         # a run that was cut ends before its requests do
    for step, (tokens, visits) in zip(steps, recorded):
        assert {rows[row]: count for row, count in step["scheduled"]} == tokens
        ours = step.get("stages") or [(step["begin_ns"], step["begin_ns"] + step["duration_ns"])]
        for (start_ns, end_ns), (start_s, end_s) in zip(ours, visits):
            assert start_ns / 1e9 == pytest.approx(start_s, abs=slack_s)
            assert (end_ns - start_ns) / 1e9 == pytest.approx(end_s - start_s, rel=1e-9, abs=2 * NS)
    for row, ours in zip(rows, recording.requests, strict=True):
        theirs = case.requests[row]
        if not theirs["completed"]:
            continue
        assert ours["status"] == records.COMPLETED
        assert ours["preemptions"] == theirs["num_restarts"]
        for name, key in (("scheduled_ns", "scheduled_at"), ("completed_ns", "completed_at"),
                          ("first_token_ns", "prefill_completed_at")):
            assert ours[name] / 1e9 == pytest.approx(theirs[key], abs=slack_s)


@pytest.mark.parametrize(("case", "replica"), RUNS)
def test_execution_and_preempted_times_add_up_as_recorded(case, replica):
    rows, recording, _ = replay(case, replica)
    slack_s = 2 * NS * len(case.batches_of(replica))

    for row, ours in zip(rows, recording.executions, strict=True):
        theirs = case.requests[row]
        if theirs["completed"]:
            assert ours["execution_ns"] / 1e9 == pytest.approx(theirs["execution_time"], abs=slack_s)
            assert ours["preempted_ns"] / 1e9 == pytest.approx(theirs["preempted_time"], abs=slack_s)


@pytest.mark.parametrize("case", [case for case in CASES if case.router == "round_robin"], ids=str)
def test_requests_take_turns_among_replicas(case):
    assert all(replica == row % case.num_replicas for row, replica in case.replica_of.items())
