"""Demands on the form of an answer, calls of tools, and log probabilities."""
import json
import re

import pytest

from simulator.live.instances import smallest
from simulator.live.patterns import NoText, shortest_match
from support.live_site import CHAT, COMPLETIONS, HELLO, TALK, Site, events_of, post

PLACE = {"type": "object", "required": ["city", "days"], "properties": {
    "city": {"type": "string", "minLength": 2}, "days": {"type": "integer", "minimum": 3}, "unit": {"enum": ["C"]}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PLACE}},
         {"type": "function", "function": {"name": "clock"}}]
FREE = {"messages": TALK["messages"]}


@pytest.mark.parametrize(("schema", "value"), [
    (PLACE, '{"city":"aa","days":3}'), (True, "null"), ({"type": ["string", "null"]}, "null"),
    ({"enum": ["long", "x"]}, '"x"'), ({"const": {"a": 1}}, '{"a":1}'),
    ({"type": "array", "minItems": 3, "prefixItems": [{"const": 7}], "items": {"type": "boolean"}}, "[7,true,true]"),
    ({"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [{"required": ["next"], "properties": {
        "next": {"$ref": "#/$defs/node"}}}, {"type": "integer", "multipleOf": 7, "exclusiveMinimum": 7}]}}}, "14"),
    ({"allOf": [{"required": ["x"]}, {"properties": {"x": {"type": "string", "pattern": "[0-9]{2}"}}}]}, '{"x":"00"}'),
    ({"type": "number", "minimum": 0.4, "maximum": 0.5}, "0.4"), ({"type": "integer", "maximum": -2.5}, "-3")])
def test_the_smallest_value_of_a_schema(schema, value):
    assert smallest(schema) == value


@pytest.mark.parametrize("schema", [
    False, 5, {"$ref": "#"}, {"$ref": "http://elsewhere"}, {"enum": []}, {"anyOf": [False]}, {"type": "other"},
    {"type": "array", "minItems": 10**9}, {"type": "integer", "minimum": 1.2, "maximum": 1.5},
    {"$ref": "#/$defs/a", "$defs": {"a": {"required": ["b"], "properties": {"b": {"$ref": "#/$defs/a"}}}}},
    {"type": "array", "minItems": 99, "items": {"type": "array", "minItems": 99, "items": {"type": "null"}}}])
def test_schemas_without_a_value(schema):
    with pytest.raises(NoText):
        smallest(schema)


@pytest.mark.parametrize(("pattern", "text"), [
    (r"\d{3}-\d{4}", "000-0000"), (r"(foo|ba|quux)+!", "ba!"), (r"[^abc]x*?", "d"), (r"(a.)\1", "aaaa"),
    (r"[A-Z][a-z]*\s", "A "), (r"^https?://\w+$", "http://a"), (r"(?:a{2}){3}", "aaaaaa"), (r"[^\w]", " ")])
def test_a_short_match(pattern, text):
    assert shortest_match(pattern) == text
    assert re.fullmatch(pattern, text)


@pytest.mark.parametrize("pattern", ["(", "(?:x{1000}){1000}", "x" * 20_000])
def test_patterns_without_a_text(pattern):
    with pytest.raises(NoText):
        shortest_match(pattern)


def test_answers_have_the_demanded_form(tmp_path):
    schema = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE}}
    bodies = [{"response_format": {"type": "json_object"}}, {"response_format": schema},
              {"structured_outputs": {"choice": ["no way", "yes"]}}, {"structured_outputs": {"regex": r"\d\d"}},
              {"structured_outputs": {"json": json.dumps(PLACE)}}, {"response_format": {"type": "text"}}]
    wrong = [{"structured_outputs": {"grammar": "root ::= x"}}, {"structured_outputs": {"regex": "("}},
             {"structured_outputs": {}}, {"response_format": {"type": "json_schema"}}]

    async def scenario(client, admin):
        found = [(await post(client, CHAT, FREE | body))[1]["choices"][0] for body in bodies]
        cut = (await post(client, CHAT, FREE | bodies[1] | {"max_tokens": 5}))[1]
        padded = (await post(client, COMPLETIONS, {"prompt": "say", "min_tokens": 4} | bodies[2]))[1]
        return found, cut, padded, [(await post(client, CHAT, FREE | body))[0] for body in wrong]

    found, cut, padded, statuses = Site(tmp_path).talk(scenario)
    *texts, free = [choice["message"]["content"] for choice in found]
    assert texts == ["{}", '{"city":"aa","days":3}', "no way", "00", '{"city":"aa","days":3}']
    assert not free.startswith("{")
    assert {choice["finish_reason"] for choice in found} == {"stop"}
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["choices"][0]["message"]["content"] == '{"city":'
    assert (padded["choices"][0]["text"], padded["usage"]["completion_tokens"]) == ("no way  ", 4)
    assert statuses == [501, 400, 400, 400]


def test_tools_are_called_where_a_request_demands_it(tmp_path):
    named = {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "clock"}}}
    wrong = [{"tool_choice": "required"}, {"tools": TOOLS, "tool_choice": {"function": {"name": "other"}}}]

    async def scenario(client, admin):
        found = [(await post(client, CHAT, FREE | body))[1]["choices"][0] for body in (
            {"tools": TOOLS, "tool_choice": "required"}, named, {"tools": TOOLS},
            {"tools": TOOLS, "tool_choice": "none"})]
        events = await events_of(client, CHAT, FREE | {"tools": TOOLS, "tool_choice": "required"})
        return found, events, [(await post(client, CHAT, FREE | body))[0] for body in wrong]

    def called(choices):
        return [[(call["function"]["name"], call["function"]["arguments"]) for call in choice["message"]["tool_calls"]]
                for choice in choices]

    found, events, statuses = Site(tmp_path).talk(scenario)
    assert called(found) == [[("weather", '{"city":"aa","days":3}')], [("clock", "{}")], [], []]
    assert [choice["finish_reason"] for choice in found[:2]] == ["tool_calls"] * 2
    assert found[0]["message"]["content"] is None
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": ""}
    [first, *rest] = [delta["tool_calls"][0] for delta in deltas[1:]]
    assert (first["type"], first["function"]) == ("function", {"name": "weather", "arguments": ""})
    assert "".join(call["function"]["arguments"] for call in rest) == '{"city":"aa","days":3}'
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert statuses == [400, 400]

    assert called(Site(tmp_path, overrides=["serve.tool_calls=always"]).talk(scenario)[0]) == [
        [("weather", '{"city":"aa","days":3}')], [("clock", "{}")], [("weather", '{"city":"aa","days":3}')], []]
    never = Site(tmp_path, overrides=["serve.tool_calls=never"])
    assert never.ask(CHAT, FREE | named)[0] == 501


def test_log_probabilities_are_fixed(tmp_path):
    async def scenario(client, admin):
        text = (await post(client, COMPLETIONS, HELLO | {"logprobs": 2, "max_tokens": 2}))[1]["choices"][0]
        chat = (await post(client, CHAT, TALK | {"logprobs": True, "top_logprobs": 3}))[1]["choices"][0]
        plain = (await post(client, CHAT, TALK | {"logprobs": True, "return_tokens_as_token_ids": True,
                                                  "return_token_ids": True}))[1]["choices"][0]
        events = await events_of(client, COMPLETIONS, HELLO | {"logprobs": 0})
        prompt = [(await post(client, COMPLETIONS, HELLO | {"prompt_logprobs": most}))[1]["choices"][0]
                  for most in (0, 2)]
        wrong = [(await post(client, CHAT, TALK | body))[0] for body in (
            {"top_logprobs": 2}, {"logprobs": True, "top_logprobs": 21}, {"prompt_logprobs": 1, "stream": True})]
        return text, chat, plain, events, prompt, wrong

    site = Site(tmp_path, overrides=["topology.replicas=1"])
    text, chat, plain, events, prompt, wrong = site.talk(scenario)
    tokens = text["logprobs"]["tokens"]
    assert "".join(tokens) == text["text"]
    assert text["logprobs"]["text_offset"] == [0, len(tokens[0])]
    assert text["logprobs"]["token_logprobs"] == [-0.1, -0.1]
    assert [sorted(top.values()) for top in text["logprobs"]["top_logprobs"]] == [[-3.1, -0.1]] * 2
    [first, *_] = chat["logprobs"]["content"]
    assert [(each["logprob"], each["token"] == first["token"]) for each in first["top_logprobs"]] == [
        (-0.1, True), (-3.1, False), (-3.2, False)]
    assert bytes(first["bytes"]).decode() == first["token"]
    assert [each["token"] for each in plain["logprobs"]["content"]] == [f"token_id:{i}" for i in plain["token_ids"]]
    assert plain["logprobs"]["content"][0]["top_logprobs"] == []
    assert [event["choices"][0]["logprobs"]["text_offset"] for event in events][:2] == [[0], [len(tokens[0])]]
    for most, choice in zip((0, 2), prompt, strict=True):
        assert choice["prompt_logprobs"][0] is None
        assert [len(table) for table in choice["prompt_logprobs"][1:]] == [max(most, 1)] * 6
    # the second chat finds 3 blocks of its 14 tokens, the stream one of its 7; with log probabilities of the prompt
    # none is read
    assert site.requests["cached_tokens"][:6].tolist() == [0, 0, 12, 4, 0, 0]
    assert wrong == [400, 400, 400]
