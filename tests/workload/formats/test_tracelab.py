"""TraceLab's rounds; iterations of 1 ms."""
import json

import pytest

from simulator.domain import records
from simulator.errors import InputErrors
from simulator.workload.formats.tracelab import TraceLab
from support.traces import json_lines, play, shared


def row(start_s, end_s, prefix=0, new=10, output=5, session="s", results=(), **others):
    def stamp(second):
        return f"2026-06-01T05:40:{second:06.3f}Z"
    return {"provider": "p", "session_id": session, "input_tokens_total": prefix + new, "prefix_tokens": prefix,
            "newly_append_tokens": new, "output_tokens": output, "reasoning_output_tokens": None,
            "timing_events": [{"timestamp": stamp(start_s)}, {"timestamp": stamp(end_s)}],
            "tools": [{"result_at": stamp(second)} for second in results]} | others


def read(*lines):
    return TraceLab().read("t.jsonl", json_lines(*lines).encode())


def fault(*lines):
    with pytest.raises(InputErrors) as caught:
        read(*lines)
    [only] = caught.value.faults
    return only


def test_the_sample_waits_for_its_tools(tmp_path):
    path = shared("tracelab/round_trace.jsonl")
    columns = TraceLab().read(path, path.read_bytes())
    first = json.loads(path.read_text().splitlines()[0])

    delays_ns = columns.waits.delays_ns[columns.waits.plays[columns.waits.targets] == 0]
    assert delays_ns.tolist()[:3] == [19_291_000_000, 12_688_000_000, 21_467_000_000]
    assert columns.waits.plays.max() == 1
    assert columns.prompt_tokens[0] == first["input_tokens_total"]
    assert columns.arrival_ns.min() == 0
    played = play(tmp_path, path, "tracelab", load={"mode": "lanes", "lanes": 2})
    assert played.ms("0") == (0, 931)
    assert played.ms("1") == (20222, 21238)             # 19.291 s after the end


def test_a_prefix_is_what_was_said_before():
    # 10 + 5 tokens said: all of it is kept, then 4 of it, as the session was compacted.
    columns = read(row(0, 1), row(2, 3, prefix=15, new=3), row(4, 5, prefix=4, new=6))

    assert columns.prompts.num_segments.tolist() == [1, 3, 2]
    assert list(zip(columns.prompts.streams.tolist(), columns.prompts.num_tokens.tolist(), strict=True)) == [
        (records.own_stream(0), 10),
        (records.own_stream(0), 10), (records.output_stream(0), 5), (records.own_stream(1), 3),
        (records.own_stream(0), 4), (records.own_stream(2), 6)]
    assert columns.notes == ()


def test_a_prefix_that_nobody_said_is_told():
    columns = read(row(0, 1, prefix=7, new=3), row(2, 3, prefix=100, new=3))

    assert columns.prompts.num_tokens.tolist() == [10, 10, 5, 88]
    assert columns.notes == (
        "rounds of the trace whose prefix is longer than what their session said before; the rest counts as new: 2",)


def test_a_round_begins_when_all_tools_have_answered():
    columns = read(row(0, 1, results=[8, 3]), row(2, 9), row(5, 6))         # the last began before the one before ended

    assert columns.waits.delays_ns.tolist() == [7_000_000_000, 0]


@pytest.mark.parametrize(("bad", "message"), [
    (row(0, 1, input_tokens_total=3), "input_tokens_total: expected prefix_tokens + newly_append_tokens, 10, found 3"),
    (row(0, 1, timing_events=[]), "timing_events: expected a list of length >= 1, found []"),
    (row(0, 1, output=-1), "output_tokens: expected an integer >= 0, found -1"),
])
def test_a_round_that_cannot_be_is_named(bad, message):
    assert fault(row(0, 1), bad).replace("`array`", "a list") == f"t.jsonl:2: {message}"
