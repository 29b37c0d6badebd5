"""Bailian's traces."""
import json

import pytest

import simulator
from simulator.errors import InputErrors
from simulator.workload.formats.bailian import Bailian, BailianParameters
from workload.test_loads import EXPERIMENT, ms


def line(chat, parent, at_s, prompt, output, ids):
    return json.dumps({"chat_id": chat, "parent_chat_id": parent, "timestamp": at_s, "input_length": prompt,
                       "output_length": output, "type": "text", "turn": 1, "hash_ids": ids})


A = line(1, -1, 0.0, 40, 20, [1, 2, 3])
B = line(2, 1, 30.5, 75, 10, [1, 2, 4, 5, 6])


def read(*lines, **keys):
    return Bailian(BailianParameters(**keys)).read("b.jsonl", "\n".join(lines).encode())


def test_r8_turns_share_their_first_blocks():
    found = read(A, B)

    assert found.arrival_ns.tolist() == [0, 30_500_000_000]
    assert found.prompts.num_segments.tolist() == [3, 5]
    assert found.prompts.num_tokens.tolist() == [16, 16, 8, 16, 16, 16, 16, 11]
    streams = found.prompts.streams.tolist()
    assert streams[3:5] == streams[:2]          # 32 tokens
    assert streams[5] != streams[2]
    assert found.waits is None
    assert found.labels["session"][0].tolist() == [0, 0]


def test_a_turn_waits_for_the_one_before_it():
    absolute = read(A, B, mode="sessions").waits
    recorded = read(A, B, mode="sessions", gap="recorded").waits

    assert (absolute.sources.tolist(), absolute.targets.tolist(), absolute.plays.tolist()) == ([0], [1], [0, 0])
    assert (absolute.delays_ns.tolist(), absolute.not_before_ns.tolist()) == ([0], [0, 30_500_000_000])
    assert (recorded.delays_ns.tolist(), recorded.not_before_ns) == ([30_500_000_000], None)


@pytest.mark.parametrize(("at_s", "keys", "expected"), [
    (30.5, "", 30_500), (30.5, 'mode = "sessions"', 30_500), (0.01, 'mode = "sessions"', 20),
    (0.01, "", 10), (0.01, 'mode = "sessions"\ngap = "recorded"', 30)])
def test_r8_in_iterations_of_a_millisecond(at_s, keys, expected, tmp_path):
    (tmp_path / "b.jsonl").write_text(f"{A}\n{line(2, 1, at_s, 75, 10, [1, 2, 4, 5, 6])}\n")
    (tmp_path / "e.toml").write_text(
        f'{EXPERIMENT}[workload]\ntype = "trace"\nformat = "bailian"\npath = "b.jsonl"\n{keys}\n')

    result = simulator.run(tmp_path / "e.toml")

    assert ms(result, "arrival_ns") == [0, expected]            # A ends at 20 ms
    if expected >= 20:
        assert result.requests["cached_tokens"].tolist() == [0, 32]


def test_a_chat_is_found_from_any_of_its_turns():
    found = read(line(9, -1, 0, 1, 1, [1]), A, line(3, 2, 50, 1, 1, [1]), B, mode="sessions")

    assert found.labels["session"][0].tolist() == [0, 1, 1, 1]
    assert found.labels["session"][1] == ["9", "1"]
    assert found.waits.sources.tolist() == [3, 1]       # of rows 2 and 3
    assert found.waits.targets.tolist() == [2, 3]


def test_turns_whose_parent_is_missing_are_counted():
    assert read(B, mode="sessions").notes == ("b.jsonl: 1 turns follow one that is not in the file; each begins a "
                                              "session.",)
    assert read(B).notes == ()


@pytest.mark.parametrize(("lines", "message"), [
    ((A, A), "b.jsonl:2: chat_id: expected one that is not that of line 1, found 1"),
    ((line(1, 2, 0, 1, 1, [1]), line(2, 1, 0, 1, 1, [1])),
     "b.jsonl:1: parent_chat_id: turns follow each other in a circle, from chat 1"),
    ((line(1, -1, 0, 17, 1, [1]),),
     "b.jsonl:1: hash_ids: expected 2 ids, blocks of 16 tokens for input_length 17, found 1"),
    (('{"chat_id": 1}',), "expected a JSON object with chat_id"),
    (("\n",), "the file is empty")])
def test_what_is_wrong_is_told(lines, message):
    with pytest.raises(InputErrors, match=message):
        read(*lines)


def test_a_gap_belongs_to_sessions():
    with pytest.raises(ValueError, match='takes mode = "sessions"'):
        BailianParameters(gap="recorded")
