"""Conversations in JSON with declared lengths; iterations of 1 ms."""
import json

import pytest

from simulator.errors import InputErrors
from simulator.workload.formats.chats import Chats
from support.traces import json_lines, play


def fault(text):
    with pytest.raises(InputErrors) as caught:
        Chats().read("c.json", text.encode())
    return caught.value.faults[0]


def texts(*lengths, keys=("from", "human", "gpt")):
    key, asking, answering = keys
    return [{key: answering if place % 2 else asking, "num_tokens": length} for place, length in enumerate(lengths)]


def test_conversations_go_on_with_all_that_was_said(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps([
        {"id": "a", "conversations": texts(10, 4, 6, 2)}, {"id": "b", "conversations": texts(8, 1, 5)}]))
    played = play(tmp_path, tmp_path / "c.json", "sharegpt", engine={"block_size": 1},
                  load={"mode": "concurrency", "concurrency": 1, "unit": "session"})

    assert played.all_ms() == [(0, 4), (4, 6), (6, 7)]
    assert [played.of(str(row), "prompt_tokens") for row in range(3)] == [10, 20, 8]
    assert played.of("1", "cached_tokens") == 13


def test_other_ways_to_write_conversations():
    chats = [{"conversation_hash": "x", "conversation": texts(3, 4, keys=("role", "user", "assistant"))},
             {"messages": [{"role": "system", "num_tokens": 2}, *texts(3, 4, keys=("role", "user", "assistant"))]}]
    columns = Chats().read("c.jsonl", json_lines(*chats).encode())

    assert columns.prompt_tokens.tolist() == [3, 5]
    assert columns.labels["session"][1] == ["x", "1"]
    assert not columns.has_times


def test_what_nobody_answers_is_told():
    columns = Chats().read("c.json", json.dumps([{"conversations": texts(8, 1, 5)}]).encode())

    assert columns.notes == (
        "texts at the end of conversations of the trace, which nobody answers and which are left out: 1",)


@pytest.mark.parametrize(("text", "message"), [
    (json.dumps([{"id": "a", "conversations": [{"from": "human", "value": "Hello"}]}]),
     "c.json: num_tokens: is missing beside a text; there is no tokenizer here: count the tokens of each text with the "
     "model's own and write their number there, or convert to a native CSV trace with session and round"),
    (json.dumps([{"conversations": [{"from": "cat", "num_tokens": 1}]}]),
     "c.json: role: expected one of human, user, system, tool, gpt, "),
    (json.dumps({"id": 1}), "c.json:1: expected a JSON object with conversations, conversation or messages"),
    (json.dumps([{"conversations": texts(0, 5)}]),
     "c.json: text 1 answers a prompt of 0 tokens, 1 to 2147483647 are possible"),
    ("[{", "c.json: expected a JSON object with conversations, conversation or messages: Input data was truncated"),
])
def test_conversations_that_cannot_be_are_refused(text, message):
    assert fault(text).startswith(message)
