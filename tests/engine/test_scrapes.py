"""What monitoring has of replicas, by scrapes worked out by hand."""
from types import SimpleNamespace

import numpy as np
import pytest

from simulator.domain import records
from simulator.domain.autoscaling import Metrics, Zero
from simulator.engine.operations.activity import Activity, are_for
from simulator.engine.operations.scrapes import FirstTokens, Scrapes

S = 10**9


def rows(*waiting):
    """Return states and accounts of replicas with so many requests that wait, twice as many of them in flight."""
    states, accounts = np.zeros(len(waiting), records.REPLICA_STATE), np.zeros(len(waiting), records.REPLICA_ACCOUNT)
    states["waiting"], states["num_blocks"] = waiting, 100
    accounts["in_flight"] = np.array(waiting) * 2
    return states, accounts


def scraped(**keys):
    """Return the scrapes of replica 4 at 15, 30, 45 and 60 s, and of replica 7 at 60 s."""
    found = Scrapes(Metrics(**keys), 0)
    for time_s, waiting in ((15, 2), (30, 8), (45, 5)):
        found.add(time_s * S, waiting, [4], *rows(waiting))
    found.add(60 * S, 1, [4, 7], *rows(1, 3))
    return found


@pytest.mark.parametrize(("aggregate", "window_s", "waiting"), [
    ("last", 30.0, 1.0), ("mean", 30.0, 3.0), ("max", 30.0, 5.0), ("mean", 46.0, 4.0), ("max", 46.0, 8.0)])
def test_aggregates_over_a_window(aggregate, window_s, waiting):
    found = scraped(aggregate=aggregate, window_s=window_s)
    states, accounts, is_known = found.seen(60 * S, [4], *rows(99))
    assert states["waiting"].tolist() == pytest.approx([waiting])
    assert accounts["in_flight"].tolist() == pytest.approx([2 * waiting])
    assert found.queued(60 * S) == pytest.approx(waiting)
    assert is_known.tolist() == [True]
    assert states["num_blocks"].tolist() == [100]


def test_replicas_without_a_fresh_report_are_shown_idle():
    found = scraped(staleness_s=40.0)
    states, accounts, is_known = found.seen(99 * S, [4, 7, 8], *rows(9, 9, 9))
    assert states["waiting"].tolist() == [1, 3, 0]
    assert accounts["in_flight"].tolist() == [2, 6, 0]
    assert is_known.tolist() == [True, True, False]
    assert found.seen(100 * S, [4], *rows(9))[2].tolist() == [False]        # 40 s old


def test_a_replica_that_was_off_begins_anew():
    found = scraped()
    found.forget(4)
    assert found.seen(61 * S, [4, 7], *rows(9, 9))[2].tolist() == [False, True]


def test_samples_of_requests():
    found = Scrapes(Metrics(), 30 * S)
    for time_s in (15, 30, 45, 60):
        found.add(time_s * S, 1, [4], *rows(time_s))
    assert [(each.time_ns // S, each.requests) for each in found.samples.at(60 * S)] == [(45, 91.0), (60, 121.0)]


def test_first_tokens_by_the_time_of_the_look():
    requests = np.zeros(4, records.REQUEST)
    requests["first_token_ns"], requests["status"] = [5 * S, -1, 20 * S, -1], records.RUNNING
    requests["status"][3] = records.REJECTED
    windowed, once = FirstTokens(requests, 15 * S), FirstTokens(requests, 0)
    seen = []
    for time_s in (10, 20, 30):
        windowed.look(time_s * S)
        once.look(time_s * S)
        seen.append((windowed.rows(time_s * S).tolist(), once.rows(time_s * S).tolist()))
    assert seen == [([0], [0]), ([0, 2], [2]), ([2], [])]


def test_activity_counts_requests_that_are_there_or_were_refused():
    requests = np.zeros(3, records.REQUEST)
    activity = Activity(Zero(cooldown_s=60.0), requests, np.array([True, True, False]))
    requests["status"][2] = records.RUNNING                     # of another model
    assert [activity.look(30 * S), activity.look(60 * S)] == [None, False]
    requests["status"][0] = records.WAITING
    assert activity.look(90 * S)
    requests["status"][0], requests["status"][1] = records.COMPLETED, records.REJECTED
    assert activity.look(120 * S)
    assert [activity.look(150 * S), activity.look(180 * S)] == [None, False]
    many = Activity(Zero(activation=2), requests, np.ones(3, bool))
    assert many.look(0) is None


@pytest.mark.parametrize(("models", "model", "own"), [
    (["a", "b"], "a", [0, 1, 0, 0]), (["a", "b"], "b", [0, 0, 0, 0]), (["a", None], None, [1, 0, 1, 1]),
    ([None], None, [1, 1, 1, 1])])
def test_requests_of_a_model(models, model, own):
    demands = np.zeros(4, records.DEMAND)
    demands["model"] = [-1, 0, 1, 1]
    workload = SimpleNamespace(labels={"model": ["a", "c"]}, demands=demands)
    assert are_for(model, models, workload).tolist() == [bool(each) for each in own]
