"""What trace.json shows of a run that is too long for it, and what it says of the rest."""
import json

import numpy as np
import pytest

import simulator
from results.fakes import MS, iterations_of, small_run
from simulator.errors import InputErrors
from simulator.results.chrome_trace import ChromeTrace
from simulator.results.trace_window import TraceWindow

EXPERIMENT = """
topology = {replicas = 2}
engine = {num_gpu_blocks = 400, max_model_len = 1000}
latency = {backend = "linear"}
[workload]
type = "synthetic"
num_requests = 50
arrival = {process = "poisson", rate_per_s = 60.0}
prompt_tokens = {distribution = "constant", tokens = 100}
output_tokens = {distribution = "constant", tokens = 20}
"""


def traced(path, window, run, rows, pieces=1):
    """Write a trace; return its events and what is left out."""
    with ChromeTrace(path, window) as trace:
        for part in np.array_split(rows, pieces):
            trace.iterations(part)
        notes = trace.finish(run)
    return json.loads(path.read_text())["traceEvents"], notes


def shown(events):
    """Return the starts of iterations in ms, and the rows of requests."""
    return ([event["ts"] / 1000 for event in events if event["ph"] == "X"],
            sorted({event["id"] for event in events if event["ph"] in "bn"}))


def test_all_is_shown_without_a_word(tmp_path):
    events, notes = traced(tmp_path / "trace.json", TraceWindow(), small_run(), iterations_of(5))

    assert len(shown(events)[0]) == 5
    assert shown(events)[1] == [0, 1, 2, 3, 4]
    assert notes == []


def test_a_window_shows_what_begins_in_it_and_who_is_there(tmp_path):
    # Iterations begin at 0, 10, 20, 30 ... ms. 0 is there until 40, 1 until 30, 2 and 3 to the end, 4 is refused at 30.
    events, notes = traced(tmp_path / "trace.json", TraceWindow((0.035, 0.06)), small_run(), iterations_of(8))

    assert shown(events) == ([pytest.approx(ms, abs=0.01) for ms in (40, 50)], [0, 2, 3])
    assert notes == ["trace.json shows 0.035 to 0.06 s, as [output] chrome_trace_window_s says: 6 iterations and "
                     "2 requests are outside"]


@pytest.mark.parametrize("pieces", [1, 3, 8])
def test_the_most_events_end_the_trace_for_iterations_and_requests_alike(tmp_path, pieces):
    # 18 events: nine may be of iterations, which are three each. The fourth begins at 30 ms: nobody is shown who came
    # then or later, which is 4. Of the nine events that are left 0 takes eight, and there is no room for 1's eight,
    # who came at 5.
    events, notes = traced(tmp_path / "trace.json", TraceWindow((), 18), small_run(), iterations_of(8), pieces)

    assert shown(events) == ([pytest.approx(ms, abs=0.01) for ms in (0, 10, 20)], [0])
    assert len([event for event in events if event["ph"] in "XCbe"]) == 9 + 8
    assert notes == ["trace.json ends at 0.005 s, since it has no more than 18 events ([output] "
                     "chrome_trace_max_events): 5 iterations and 4 requests are left out; chrome_trace_window_s "
                     "chooses others"]


def test_incidents_outside_are_left_out(tmp_path):
    run = small_run()
    run.incidents = [(3 * MS, 0, "failure", "down"), (9 * MS, 0, "recovery", "up again")]

    events, _ = traced(tmp_path / "trace.json", TraceWindow((0.005, 0.01)), run, iterations_of(1))

    assert [event["name"] for event in events if event["ph"] == "i"] == ["up again"]


@pytest.mark.parametrize("limit", [{"chrome_trace_max_events": 300}, {"chrome_trace_window_s": [0.2, 0.4]}])
def test_what_is_left_out_stands_in_the_diagnosis(tmp_path, limit):
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    output = {"output.chrome_trace": True} | {f"output.{key}": value for key, value in limit.items()}

    result = simulator.run(tmp_path / "experiment.toml", output, out=tmp_path / "out")

    events = json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] != "M" for event in events) <= limit.get("chrome_trace_max_events", 10_000)
    iterations = sum(event["ph"] == "X" and event["pid"] >= 0 for event in events)
    assert 0 < iterations < result.summary["iterations"]
    [note] = [text for text in result.summary["diagnosis"] if "trace.json" in text]
    assert f"{result.summary['iterations'] - iterations} iterations" in note


@pytest.mark.parametrize(("output", "message"), [
    ({"chrome_trace_window_s": [1, 2]}, "take chrome_trace = true"),
    ({"chrome_trace_max_events": 5}, "take chrome_trace = true"),
    ({"chrome_trace": True, "chrome_trace_window_s": [2, 1]}, "the first before the second"),
    ({"chrome_trace": True, "chrome_trace_window_s": [2]}, "the first before the second")])
def test_limits_that_mean_nothing_are_refused(tmp_path, output, message):
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)

    with pytest.raises(InputErrors, match=message):
        simulator.run(tmp_path / "experiment.toml", {f"output.{key}": value for key, value in output.items()})
