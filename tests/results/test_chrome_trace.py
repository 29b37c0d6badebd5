"""trace.json: valid, complete, in the terms of the Trace Event format."""
import json
from collections import Counter

import numpy as np
import pytest

from results.fakes import MS, iterations_of, legs_of, replicas_of, requests_of, small_run, workload_of
from simulator.domain import records
from simulator.results.chrome_trace import ChromeTrace


def trace_of(path, run, *parts):
    """Write a trace; return its events."""
    with ChromeTrace(path) as trace:
        for rows in parts:
            trace.iterations(rows)
        trace.finish(run)
    return json.loads(path.read_text())["traceEvents"]


@pytest.fixture
def events(tmp_path):
    return trace_of(tmp_path / "trace.json", small_run(), iterations_of(2), iterations_of(0), iterations_of(3)[2:])


def test_each_iteration_is_a_complete_event_with_its_composition(events):
    complete = [event for event in events if event["ph"] == "X"]

    assert [event["name"] for event in complete] == ["prefill", "decode", "decode"]
    assert [event["ts"] for event in complete] == [0.0, 10_000.0, 20_000.001]     # when the one before it ends
    assert [event["dur"] for event in complete] == [10_000.0, 10_000.001, 10_000.002]
    assert {(event["pid"], event["tid"]) for event in complete} == {(0, 0)}
    assert complete[0]["args"] == {
        "sequences": 2, "prefill_tokens": 100, "decode_tokens": 0, "context_tokens": 100, "preempted": 0}


def test_counters_show_blocks_and_requests(events):
    counters = [event for event in events if event["ph"] == "C"]

    assert [(event["name"], event["args"]) for event in counters[:2]] == [
        ("KV blocks", {"used": 7}), ("requests", {"running": 2, "waiting": 1})]
    assert len(counters) == 2 * 3


def test_requests_are_spans_with_their_phases(events):
    begins = {(event["id"], event["name"]): event["ts"] for event in events if event["ph"] == "b"}
    ends = {(event["id"], event["name"]): event["ts"] for event in events if event["ph"] == "e"}

    assert begins.keys() == ends.keys()
    # request 0: arrives 0, queued 1, scheduled 2, first token 10, done 40 (ms)
    assert [(begins[0, name], ends[0, name]) for name in ("request 0", "queue", "prefill", "decode")] == [
        (0.0, 40_000.0), (1_000.0, 2_000.0), (2_000.0, 10_000.0), (10_000.0, 40_000.0)]
    # request 3 waits in the queue when the clock stops at 60
    assert (begins[3, "queue"], ends[3, "queue"], ends[3, "request 3"]) == (20_000.0, 60_000.0, 60_000.0)
    assert (3, "prefill") not in begins
    assert not [key for key in begins if key[0] == 5]       # had not arrived


def test_requests_without_a_replica_are_instants(events):
    instant, = [event for event in events if event["ph"] == "n"]

    assert (instant["name"], instant["pid"], instant["args"]) == ("request 4", -1, {"status": "rejected"})


def test_spans_are_balanced_and_processes_named(events):
    kinds = Counter(event["ph"] for event in events)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}

    assert kinds["b"] == kinds["e"]
    assert names == {0: "replica 0", -1: "not routed"}
    assert [event["args"]["name"] for event in events if event["name"] == "thread_name"] == ["stage 0"]


def test_a_request_that_timed_out_ends_at_its_deadline(tmp_path):
    workload = workload_of(requests_of([(0, 0, 5, None, None, 10, 0, records.TIMED_OUT)]))
    workload.demands["deadline_ns"] = 7_000_500
    run = small_run()
    run.workload = workload

    events = trace_of(tmp_path / "trace.json", run)

    assert {event["name"]: event["ts"] for event in events if event["ph"] == "e"} == {
        "request 0": 7_000.5, "queue": 5_000.0, "prefill": 7_000.5}


def test_an_empty_run_is_valid(tmp_path):
    run = small_run()
    run.workload = workload_of(requests_of([]))
    run.replicas = replicas_of()

    assert trace_of(tmp_path / "trace.json", run) == []


def test_ids_that_are_text_are_escaped(tmp_path):
    run = small_run(['a"b', "c\\d", "é", "d", "e", "f"])

    events = trace_of(tmp_path / "trace.json", run)

    assert {'request a"b', "request c\\d", "request é"} <= {event["name"] for event in events}


def test_stages_are_threads_and_iterations_follow_one_another_in_each(tmp_path):
    # Both are scheduled at 0; the second waits for the first stage, until 10, and for the last, until 40 (ms).
    rows = iterations_of(4)
    rows["stage"] = [0, 0, 1, 1]
    rows["start_ns"] = [0, 0, 10_000_000, 40_000_000]
    rows["begin_ns"] = [0, 10_000_000, 10_000_000, 40_000_000]
    rows["duration_ns"] = [10_000_000, 10_000_000, 30_000_000, 30_000_000]

    events = trace_of(tmp_path / "trace.json", small_run(), rows)

    complete = [(event["tid"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"]
    assert complete == [
        (0, 0.0, 10_000.0), (0, 10_000.0, 10_000.0), (1, 10_000.0, 30_000.0), (1, 40_000.0, 30_000.0)]
    assert [event["args"]["name"] for event in events if event["name"] == "thread_name"] == ["stage 0", "stage 1"]
    assert len([event for event in events if event["ph"] == "C"]) == 2 * 2      # of the first stage


def test_requests_cross_the_gateway_on_their_way_to_a_replica(tmp_path):
    # 0 waits for 1 ms, 1 and 2 are sent at once, 3 stays at the gateway, 4 is refused at 30, 5 has not come
    run = small_run()
    run.journeys = np.zeros(6, records.JOURNEY)
    run.journeys["admitted_ns"] = [0, 5 * MS, 10 * MS, 20 * MS, -1, -1]
    run.journeys["dispatched_ns"] = [1 * MS, 5 * MS, 10 * MS, -1, -1, -1]
    run.journeys["cause"][4] = records.CAUSE_NAMES.index("admission")
    run.workload.requests["replica"][3] = -1

    events = trace_of(tmp_path / "trace.json", run)

    of_gateway = [event for event in events if event.get("cat") == "gateway"]
    assert [(event["ph"], event["id"], event["ts"]) for event in of_gateway] == [
        ("b", 0, 0.0), ("e", 0, 1_000.0), ("b", 3, 20_000.0), ("e", 3, 60_000.0), ("n", 4, 30_000.0)]
    assert of_gateway[-1]["args"] == {"status": "rejected", "cause": "admission"}
    arrows = [event for event in events if event.get("cat") == "route"]
    assert [(event["ph"], event["pid"], event["ts"]) for event in arrows[:3]] == [
        ("X", -1, 1_000.0), ("s", -1, 1_000.0), ("f", 0, 1_000.0)]
    assert [event["id"] for event in arrows if event["ph"] in "sf"] == [0, 0, 1, 1, 2, 2]
    assert {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"} == {
        0: "replica 0", -1: "gateway"}
    assert not [event for event in events if event["pid"] == -1 and event.get("cat") == "request"]


def test_a_request_that_came_back_is_an_arrow_for_each_dispatch(tmp_path):
    # 2 comes at 10, goes to replica 1 at 12, at once from there to replica 2 at 15, comes back at 25, goes to 0 at 30;
    # 3 comes at 20, goes to replica 1 at once, comes back at 40 and stays at the gateway until the clock stops at 60
    run = small_run()
    run.journeys = np.zeros(6, records.JOURNEY)
    run.journeys["dispatched_ns"] = [0, 5 * MS, 30 * MS, 20 * MS, -1, -1]
    run.workload.requests["replica"][3] = -1
    run.legs = legs_of([(2, 1, 12, 12, 15, "retried"), (2, 2, 15, 15, 25, "retried"), (3, 1, 20, 20, 40, "retried"),
                        (2, 0, 30, 30, None, "underway")])

    events = trace_of(tmp_path / "trace.json", run)

    waits = [(event["id"], event["ph"], event["ts"]) for event in events
             if event.get("cat") == "gateway" and event["ph"] in "be"]
    assert waits == [(2, "b", 10_000.0), (2, "e", 12_000.0), (2, "b", 25_000.0), (2, "e", 30_000.0),
                     (3, "b", 40_000.0), (3, "e", 60_000.0)]
    arrows = [(event["id"], event["name"], event["pid"], event["ts"]) for event in events
              if event.get("cat") == "route" and event["ph"] == "f" and event["id"] > 1]
    assert arrows == [(2, "route", 1, 12_000.0), (2, "retry 1", 2, 15_000.0), (2, "retry 2", 0, 30_000.0),
                      (3, "route", 1, 20_000.0)]
    assert len({(event["id"], event["name"]) for event in events if event["ph"] == "s"}) == 2 + len(arrows)


def test_a_request_that_gave_up_at_the_gateway_ends_there_at_its_deadline(tmp_path):
    run = small_run()
    run.workload = workload_of(requests_of([(2, None, None, None, None, 10, 0, records.TIMED_OUT)]))
    run.workload.demands["deadline_ns"] = 7 * MS
    run.journeys = np.zeros(1, records.JOURNEY)
    run.journeys["admitted_ns"], run.journeys["dispatched_ns"] = 2 * MS, -1

    events = [event for event in trace_of(tmp_path / "trace.json", run) if event.get("cat") == "gateway"]

    assert [(event["ph"], event["ts"]) for event in events] == [("b", 2_000.0), ("e", 7_000.0), ("n", 7_000.0)]


def test_incidents_are_instants_of_their_replica(tmp_path):
    run = small_run()
    run.incidents = [(3 * MS, 0, "failure", 'node "a" is down'), (9 * MS, 0, "recovery", "up again")]

    events = [event for event in trace_of(tmp_path / "trace.json", run) if event["ph"] == "i"]

    assert [(event["cat"], event["name"], event["pid"], event["ts"]) for event in events] == [
        ("failure", 'node "a" is down', 0, 3_000.0), ("recovery", "up again", 0, 9_000.0)]


def test_a_request_that_moves_is_an_arrow_from_replica_to_replica(tmp_path):
    run = small_run()
    # 1 is sent from replica 0 to 2 at 3 and gets there at 7, on to 0 at 8, there at 9, and to 1 at 10, still under way
    run.legs = legs_of([(1, 0, 0, 0, 7, "moved"), (0, 0, 0, 0, 5, "completed"), (1, 2, 3, 7, 9, "moved"),
                        (1, 0, 8, 9, 12, "moved"), (1, 1, 10, None, None, "underway")])

    events = [event for event in trace_of(tmp_path / "trace.json", run) if event.get("cat") == "migration"]

    assert [(event["ph"], event["name"], event["pid"], event["ts"]) for event in events[:4]] == [
        ("X", "request 1", 0, 3_000.0), ("s", "migration", 0, 3_000.0),
        ("X", "request 1", 2, 7_000.0), ("f", "migration", 2, 7_000.0)]
    assert [event["args"] for event in events[:4] if event["ph"] == "X"] == [{"to": 2}, {"from": 0}]
    assert [event["id"] for event in events if event["ph"] in "sf"] == [0, 0, 1, 1]
