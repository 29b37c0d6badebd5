"""What messages say, and what an answer is made of."""
import json

import pytest

from simulator.study.observe.answer import Answer
from simulator.study.observe.messages import NoMessage, error_of, message_of
from simulator.study.observe.sse import Event

MS = 1_000_000


def message(**body):
    return message_of(json.dumps(body).encode())


def chat(**delta):
    return {"choices": [{"index": 0, "delta": delta}]}


def taken(*reads):
    """Return an answer of reads at 1, 2, ... ms, each a list of bodies, or of "[DONE]"."""
    answer = Answer()
    for number, bodies in enumerate(reads, 1):
        answer.take([Event("", body.encode() if isinstance(body, str) else json.dumps(body).encode())
                     for body in bodies], number * MS)
    answer.close()
    return answer


@pytest.mark.parametrize("delta", [
    {"content": "a"}, {"reasoning": "a"}, {"reasoning_content": "a"}, {"tool_calls": [{"index": 0}]},
    {"function_call": {"name": "f"}}])
def test_text_reasoning_and_calls_of_tools_are_content(delta):
    assert message(**chat(**delta)).content


@pytest.mark.parametrize("delta", [{"role": "assistant", "content": ""}, {"content": None}, {"tool_calls": []}])
def test_whose_turn_it_is_is_no_content(delta):
    assert not message(**chat(**delta)).content


def test_an_event_without_choices_tells_usage():
    told = message(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7})

    assert not told.has_choices and (told.usage.prompt_tokens, told.usage.completion_tokens) == (5, 2)


@pytest.mark.parametrize("body", [
    {"error": {"message": "no\n blocks", "code": 500}}, {"error": "no blocks"},
    {"object": "error", "message": "no blocks", "code": 500}])
def test_errors_are_told_in_one_line(body):
    assert message(**body).error == "no blocks"
    assert error_of(json.dumps(body).encode()) == "no blocks"


def test_an_error_that_is_no_json_is_told_as_it_is():
    assert error_of(b"<h1>Bad\nGateway</h1>") == "<h1>Bad Gateway</h1>"


@pytest.mark.parametrize("data", [b"{", b"[1]", b'{"choices": 3}', b'"\xff"'])
def test_what_is_no_message_is_said_to_be_none(data):
    with pytest.raises(NoMessage):
        message_of(data)


def test_the_first_message_of_chat_holds_no_token():
    answer = taken([chat(role="assistant", content="")], [chat(content="a")], [chat(content="b"), "[DONE]"])

    assert (answer.first_message_ns, answer.first_token_ns, answer.last_token_ns) == (1 * MS, 2 * MS, 3 * MS)
    assert list(answer.tokens) == [1, 1]


def test_usage_tells_how_many_tokens_a_message_holds():
    # 0 tokens, then 3 (as drafts that were accepted come), then 1 whose text is not there yet
    def said(text, tokens):
        return {"choices": [{"index": 0, "text": text}], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}}

    answer = taken([said("", 0)], [said("abc", 3)], [said("", 4)], ["[DONE]"])

    assert list(answer.tokens) == [3, 1] and answer.first_token_ns == 2 * MS
    assert (answer.input_tokens, answer.output_tokens) == (9, 4)


def test_usage_at_the_end_alone_leaves_a_token_a_message():
    answer = taken([chat(content="a")], [chat(content="b")], [
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5,
                                  "prompt_tokens_details": {"cached_tokens": 8}}}, "[DONE]"])

    assert list(answer.tokens) == [1, 1]
    assert (answer.output_tokens, answer.cached_tokens) == (5, 8)


def test_messages_of_one_read_have_one_time_and_are_marked():
    answer = taken([chat(content="a"), chat(content="b"), chat(content="c")], [chat(content="d"), "[DONE]"])

    assert list(answer.times_ns) == [MS, MS, MS, 2 * MS]
    assert list(answer.batched) == [0, 1, 1, 0]


def test_an_empty_message_before_does_not_make_a_token_batched():
    answer = taken([chat(role="assistant", content=""), chat(content="a"), "[DONE]"])

    assert list(answer.batched) == [0]


def test_a_stream_that_just_ends_is_broken():
    assert taken([chat(content="a")]).status == "broken"
    assert taken([chat(content="a"), "[DONE]"]).status == "ok"
    assert taken([{"choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}]).status == "ok"


def test_an_error_in_the_stream_fails_the_request():
    answer = taken([chat(content="a")], [{"error": {"message": "out of blocks"}}], [chat(content="b"), "[DONE]"])

    assert (answer.status, answer.error) == ("error_event", "out of blocks")


def test_an_event_named_error_fails_the_request():
    answer = Answer()
    answer.take([Event("error", b'{"detail": "gone"}')], MS)

    assert (answer.status, answer.error) == ("error_event", '{"detail": "gone"}')


def test_the_first_failure_stays():
    answer = Answer()
    answer.fail("timeout", "late")
    answer.fail("broken", "gone")

    assert (answer.status, answer.error) == ("timeout", "late")
