"""Dynamo's request traces; iterations of 1 ms."""
import gzip

import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.dynamo import Dynamo
from support.traces import json_lines, play

BASE_MS = 1_700_000_000_000


def event(kind, at_ms, session=None, parent=None, **others):
    context = {} if session is None else {"agent_context": {"session_id": session} | (
        {} if parent is None else {"parent_session_id": parent})}
    return {"schema": "dynamo.request.trace.v1", "event_type": kind, "event_time_unix_ms": BASE_MS + at_ms,
            **context, **others}


def request(name, at_ms, took_ms=10, session=None, parent=None, *, output=2, tokens=16, hashes=(2**64 - 1,)):
    return event("request_end", at_ms + took_ms, session, parent, request={
        "request_id": name, "model": "m", "output_tokens": output, "request_received_ms": BASE_MS + at_ms,
        "total_time_ms": took_ms, "replay": {"trace_block_size": 16, "input_length": tokens,
                                             "input_sequence_hashes": list(hashes)}})


def tool(source, consumer, child, mode="blocking"):
    return event("tool_end", 115, "parent", tool={"tool_call_id": "t", "tool_class": "agent", "claude": {
        "source_request_id": source, "consumer_request_id": consumer, "child_session_id": child,
        "execution_mode": mode}})


def read(*lines):
    return Dynamo().read("d.jsonl", json_lines(*lines).encode())


def fault(*lines):
    with pytest.raises(InputErrors) as caught:
        read(*lines)
    [only] = caught.value.faults
    return only


def edges(columns):
    waits, ids = columns.waits, columns.request_ids
    return sorted((ids[source], ids[target], delay // 10**6, "start" if from_dispatch else "end")
                  for source, target, delay, from_dispatch in zip(
                      waits.sources.tolist(), waits.targets.tolist(), waits.delays_ns.tolist(),
                      waits.from_dispatch.tolist(), strict=True))


FAMILY = [request("late", 200, session="parent"), request("early", 100, session="parent"),
          request("child1", 120, session="child", parent="parent"),
          request("child2", 150, session="child", parent="parent")]


def test_without_sessions_requests_come_at_their_times():
    columns = read(request("b", 120), request("a", 100), event("request_payload", 0), event("tool_start", 0))

    assert (columns.request_ids, columns.arrival_ns.tolist()) == (["a", "b"], [0, 20_000_000])
    assert columns.waits is None
    assert columns.prompts.streams.tolist()[0] == columns.prompts.streams.tolist()[1]


def test_a_child_begins_with_its_caller_and_is_waited_for():
    # The sequence of each session; the child 20 ms after `early` came; `late` 40 ms after the child's end at 160.
    assert edges(read(*FAMILY)) == [("child1", "child2", 20, "end"), ("child2", "late", 40, "end"),
                                    ("early", "child1", 20, "start"), ("early", "late", 90, "end")]
    assert edges(read(*FAMILY, tool("early", None, "child", "background"))) == [
        ("child1", "child2", 20, "end"), ("early", "child1", 20, "start"), ("early", "late", 90, "end")]
    assert edges(read(*FAMILY, tool("early", "late", "child"))) == edges(read(*FAMILY))


def test_a_family_is_played_from_several_files(tmp_path):
    # early 0-2; child1 at 20, ends 22; child2 at 42, ends 44; late at max(2 + 90, 44 + 40); other: 30 ms later, alone.
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "1.jsonl").write_text(json_lines(*FAMILY[:2], {"event": request("other", 130, session="x")}))
    (folder / "2.jsonl.gz").write_bytes(gzip.compress(json_lines(*FAMILY[2:]).encode()))
    (folder / "README.md").write_text("not a trace")
    played = play(tmp_path, folder, "dynamo")

    assert {name: played.ms(name) for name in ("early", "child1", "child2", "late", "other")} == {
        "early": (0, 2), "child1": (20, 22), "child2": (42, 44), "late": (92, 94), "other": (30, 32)}
    lanes = play(tmp_path, folder, "dynamo", load={"mode": "lanes", "lanes": 1})
    assert lanes.ms("other") == (94, 96)                # of another play


def test_without_a_duration_the_event_is_the_end():
    first = request("a", 100, session="s")
    first["event_time_unix_ms"] = BASE_MS + 150
    del first["request"]["total_time_ms"]

    assert edges(read(first, request("b", 160, session="s"))) == [("a", "b", 10, "end")]


def test_hashes_of_full_blocks_are_enough():
    columns = read(request("a", 0, tokens=20), request("b", 0, tokens=20, hashes=(1, 2)))

    assert columns.prompts.num_tokens.tolist() == [16, 4, 20]


@pytest.mark.parametrize(("lines", "message"), [
    ([request("a", 0), request("b", 0, session="s")], "2: agent_context: expected for all requests, or for none"),
    ([request("a", 0), request("a", 5)], '2: request_id: expected an id that no other request has, found "a"'),
    ([request("a", 0, tokens=40)], "1: input_sequence_hashes: expected 3, blocks of 16 tokens for input_length 40, "
                                   "found 1"),
    ([request("a", 0, session="s", parent="x")],
     '1: parent_session_id: expected the session of a request, found "x"'),
    ([*FAMILY, tool("nobody", None, "child")],
     '5: source_request_id: expected a request of session "parent", found "nobody"'),
    ([*FAMILY, tool("early", "late", "child", "else")],
     "5: tool.claude.execution_mode: Invalid enum value 'else', found "
     '{"tool_call_id": "t", "tool_class": "agent", "claude": {"sou'),
    ([request("a", 0), event("request_begin", 0)],
     "2: event_type: expected request_end, tool_end, tool_error, request_payload or tool_start, "
     'found "request_begin"'),
    ([event("request_end", 0)], "1: request: a request_end needs it"),
    ([*FAMILY, tool("late", "early", "child")],
     None),
])
def test_a_line_that_cannot_be_is_named(lines, message):
    if message is None:
        with pytest.raises(InputErrors) as caught:
            read(*lines)
        assert {each.split(": ", 1)[1] for each in caught.value.faults} == {
            "request_id: the request waits for itself, by way of others"}
        return
    assert fault(*lines) == f"d.jsonl:{message}"


def test_a_trace_without_requests_is_none():
    assert fault(event("tool_start", 0)) == "d.jsonl: there is no request_end in it"
