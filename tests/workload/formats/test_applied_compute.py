"""Applied Compute's traces of agents; iterations of 1 ms."""
import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.applied_compute import AppliedCompute
from support.traces import json_lines, play

LINE = {"num_turns": 2, "input_prompt_length": 100, "assistant_response_length": [10, 20],
        "tool_call_output_length": [30, 40], "tool_call_latency": [1.5, 0.5], "final_assistant_response_length": 5}


def fault(*lines):
    with pytest.raises(InputErrors) as caught:
        AppliedCompute().read("a.jsonl", json_lines(*lines).encode())
    [only] = caught.value.faults
    return only


@pytest.fixture
def path(tmp_path):
    (tmp_path / "a.jsonl").write_text(json_lines(LINE, LINE | {"num_turns": 0} | {
        key: [] for key in LINE if isinstance(LINE[key], list)}))
    return tmp_path / "a.jsonl"


def test_d3_tools_take_time_between_requests(tmp_path, path):
    played = play(tmp_path, path, "applied_compute", load={"mode": "lanes", "lanes": 2}, engine={"block_size": 1})

    assert played.all_ms() == [(0, 10), (1510, 1530), (2030, 2035), (0, 5)]
    assert [played.of(str(row), "prompt_tokens") for row in range(4)] == [100, 140, 200, 100]
    assert [played.of(str(row), "cached_tokens") for row in range(4)] == [0, 109, 159, 0]


def test_or_one_play_after_the_other(tmp_path, path):
    played = play(tmp_path, path, "applied_compute", load={"mode": "concurrency", "concurrency": 1, "unit": "session"})

    assert played.all_ms()[-1] == (2035, 2040)


def test_without_times_something_must_let_plays_come(tmp_path, path):
    with pytest.raises(InputErrors) as caught:
        play(tmp_path, path, "applied_compute")
    assert caught.value.faults[0].endswith(
        'workload.load.mode: "timestamps" needs times, which a trace of format = "applied_compute" does not have; '
        '"lanes" and "concurrency" need none')


@pytest.mark.parametrize(("bad", "message"), [
    (LINE | {"tool_call_latency": [1.0]}, "tool_call_latency: expected 2 numbers (num_turns), found 1"),
    (LINE | {"tool_call_latency": [1.0, -1.0]}, "tool_call_latency[1]: expected a number >= 0.0, found [1.0,-1.0]"),
    (LINE | {"input_prompt_length": 0}, "input_prompt_length: expected an integer >= 1, found 0"),
    (LINE | {"input_prompt_length": 2**31 - 1},
     "the last prompt has 2147483747 tokens, at most 2147483647 are possible"),
])
def test_a_line_that_cannot_be_is_named(bad, message):
    assert fault(LINE, bad).replace(", -1.0]", ",-1.0]") == f"a.jsonl:2: {message}"
