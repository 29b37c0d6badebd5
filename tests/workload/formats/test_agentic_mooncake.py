"""Agentic Mooncake, version 2; iterations of 1 ms."""
import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.agentic_mooncake import AgenticMooncake
from support.traces import json_lines, play

HEADER = {"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 16, "hash_id_scope": "local",
          "source": {"format": "weka", "digest": "x"}}


def row(name, after=(), *, play_id="p", tokens=16, output=1, ids=(1,), at=0.0, **others):
    dependencies = [{"request_id": source, "trigger": trigger, "delay_ms": delay, "relation": relation}
                    for source, trigger, delay, relation in after]
    return {"request_id": name, "play_id": play_id, "session_id": "s", "model": "m", "input_length": tokens,
            "output_length": output, "hash_ids": list(ids), "not_before_ms": at, "dependencies": dependencies} | others


def read(*lines):
    return AgenticMooncake().read("a.jsonl", json_lines(*lines).encode())


def fault(*lines):
    with pytest.raises(InputErrors) as caught:
        read(*lines)
    [only] = caught.value.faults
    return only


def test_requests_wait_for_arrivals_and_ends_and_their_time(tmp_path):
    # b comes 1 ms after a has come; c 2 ms after a's and b's ends, 4 and 5; d not before 30 ms of the play.
    path = tmp_path / "a.jsonl"
    path.write_text(json_lines(
        HEADER, row("a", output=4, at=100), row("b", [("a", "dispatch", 1, "spawn")], output=4),
        row("c", [("a", "completion", 2, "sequence"), ("b", "completion", 2, "join")], ids=[1, 2], tokens=20),
        row("d", [("a", "completion", 0, "replay_barrier")], at=130),
        row("e", play_id="q", at=150)))
    played = play(tmp_path, path, "agentic_mooncake")

    assert [played.ms(name) for name in "abcde"] == [(0, 4), (1, 5), (7, 8), (30, 31), (50, 51)]
    assert played.of("c", "cached_tokens") == 16


def test_ids_are_those_of_a_play():
    columns = read(HEADER, row("a", ids=[7]), row("b", ids=[7], play_id="q"), row("c", ids=[7]))

    assert columns.request_ids == ["a", "c", "b"]       # by play
    streams = columns.prompts.streams.tolist()
    assert streams[0] == streams[1] != streams[2]


def test_plays_run_by_ordinal():
    columns = read(HEADER, row("a", play_id="p", source_play_ordinal=1), row("b", play_id="q", source_play_ordinal=0))

    assert columns.request_ids == ["b", "a"]


@pytest.mark.parametrize(("lines", "message"), [
    ([HEADER | {"version": 1}, row("a")], "1: version: Invalid enum value 1, found 1"),
    ([row("a")], "1: expected a JSON object with schema, version, block_size, hash_id_scope: Object missing required "
                 "field `schema`"),
    ([HEADER, row("a", ids=[1, 2])], "2: hash_ids: expected 1 id, blocks of 16 tokens for input_length 16, found 2"),
    ([HEADER, row("a"), row("b", [("x", "completion", 0, "join")])],
     '3: dependencies: expected the request_id of a line, found "x"'),
    ([HEADER, row("a"), row("b", [("a", "dispatch", 0, "join")])],
     '3: dependencies: trigger "dispatch" is for relation "spawn", found "join"'),
    ([HEADER, row("a"), row("b", [("a", "completion", 0, "join")], play_id="q")],
     '3: dependencies: expected a request of play "q", found "a", one of "p"'),
    ([HEADER, row("a"), row("a")], '3: request_id: expected an id that is not that of line 2, found "a"'),
    ([HEADER, row("a"), row("b", [("c", "completion", 0, "join")]), row("c", [("c", "completion", 0, "join")])],
     "4: dependencies: the request waits for itself, by way of others"),
    ([HEADER, row("a", source_play_ordinal=3)],
     " source_play_ordinal: expected each of 0 to 0 for one play, or none at all"),
    ([HEADER, row("a", source_play_ordinal=0), row("b", source_play_ordinal=1)],
     "3: source_play_ordinal: expected 0, that of the play's first line, found 1"),
])
def test_a_line_that_cannot_be_is_named(lines, message):
    assert fault(*lines) == f"a.jsonl:{message}"


def test_a_header_alone_has_no_requests():
    assert fault(HEADER) == "a.jsonl: there are no requests below the header"
