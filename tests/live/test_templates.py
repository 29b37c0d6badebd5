"""Chat templates: the text of a chat as a Jinja template writes it, in a sandbox."""
import json

import pytest

from simulator.errors import InputErrors
from simulator.live.bodies import ChatBody, Refused, read_body
from support.live_site import Site

jinja2 = pytest.importorskip("jinja2", reason="jinja2 is in the extra tokenizers")
from simulator.live.templates import Template  # noqa: E402

SAYS = {"role": "user", "content": [{"type": "text", "text": "one <two>"}]}
CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 1}'}}]}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def text_of(tmp_path, template, file="chat_template.jinja", **fields):
    """Return the text that a template writes of a body with some fields."""
    (tmp_path / file).write_text(template)
    return Template(str(tmp_path / file))(read_body(json.dumps({"messages": [SAYS]} | fields).encode(), ChatBody)[0])


@pytest.mark.parametrize(("template", "fields", "text"), [
    ("{% for m in messages %}\n[{{ m.role }}] {{ m['content'] }}\n{% endfor %}\n"
     "{% if add_generation_prompt %}\n[assistant]{% endif %}", {}, "[user] one <two>\n[assistant]"),
    ("{{ add_generation_prompt }}", {"add_generation_prompt": False}, "False"),
    ("{{ thinks }}{{ messages|length }}", {"chat_template_kwargs": {"thinks": 1, "messages": []}}, "11"),
    ("{{ messages[1].tool_calls[0].function.arguments.a }}", {"messages": [SAYS, CALL]}, "1"),
    ("{{ tools[0].function | tojson }}", {"tools": [TOOL]},
     '{"name": "add", "description": null, "parameters": {"type": "object"}}'),
    ("{{ tools is none }}", {}, "True"),
    ("{% generation %}a{% endgeneration %}{% for i in [1, 2] %}{% break %}{% endfor %}", {}, "a"),
    ("{{ strftime_now('%Y') | length }}", {}, "4")])
def test_the_text_of_a_chat(tmp_path, template, fields, text):
    assert text_of(tmp_path, template, **fields) == text


def test_special_tokens_are_those_of_the_configuration(tmp_path):
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"},
              "chat_template": "{{ bos_token }}config{{ eos_token }}"}
    assert text_of(tmp_path, json.dumps(config), "tokenizer_config.json") == "<s>config</s>"
    assert text_of(tmp_path, "{{ bos_token }}beside") == "<s>beside"
    config["chat_template"] = [{"name": "default", "template": "first"}, {"name": "tool_use", "template": "second"}]
    assert text_of(tmp_path, json.dumps(config), "tokenizer_config.json") == "first"


@pytest.mark.parametrize(("template", "fault"), [
    ("{{ raise_exception('roles must alternate') }}", "roles must alternate"), ("{{ 1 / 0 }}", "division by zero"),
    ("{{ messages.append(1) }}", "unsafe"), ("{{ ''.__class__.__mro__ }}", "unsafe")])
def test_a_template_that_fails(tmp_path, template, fault):
    with pytest.raises(Refused, match=f"The chat template fails: .*{fault}") as refused:
        text_of(tmp_path, template)
    assert refused.value.status == 400


@pytest.mark.parametrize(("file", "content", "fault"), [
    ("a.jinja", None, "a.jinja cannot be read"), ("a.jinja", "\n{% if %}", "a.jinja:2: Expected an expression"),
    ("a.json", "[]", "a.json: Expected `object`"), ("a.json", "{}", "a.json: expected a text chat_template")])
def test_a_template_with_faults(tmp_path, file, content, fault):
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(InputErrors, match=f"serve.chat_template: .*{fault}"):
        Template(str(tmp_path / file))


def test_a_chat_has_the_tokens_of_its_template(tmp_path):
    (tmp_path / "chat.jinja").write_text("a b c {{ messages[0].content }}")
    status, answer = Site(tmp_path, overrides=[f'serve.chat_template="{tmp_path}/chat.jinja"']).ask("/tokenize", {
        "messages": [{"role": "user", "content": "d e"}]})
    assert status == 200
    assert answer["count"] == 5
