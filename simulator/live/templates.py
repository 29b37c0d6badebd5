"""Chat templates: the text of a chat as a model's Jinja template writes it; they need the package `jinja2`.

Source of names, filters and settings: Hugging Face transformers 4.57, utils/chat_template_utils.py; of messages and
tools: vLLM 0.33.0, entrypoints/chat_utils.py (contents as texts, arguments of calls as objects).
"""
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from simulator.errors import InputErrors, KeyFault
from simulator.live.bodies import ChatBody, ChatMessage, Refused, TokenizeBody, content_text

CONFIG = "tokenizer_config.json"
SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


class Generation(Extension):
    """The tag `generation`, which has no effect on the text."""

    tags = frozenset(("generation",))

    def parse(self, parser) -> list[nodes.Node]:
        """Return the statements within the tag."""
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


class Template:
    """A chat template, in a sandbox.

    path : a file of Jinja text, with the special tokens of the tokenizer_config.json beside it, if there is one; or a
    tokenizer_config.json that has the template.

    Raises InputErrors: the file cannot be read, or has no template.
    """

    def __init__(self, path: str):
        file = Path(path)
        text, self._special = _read(file), {}
        config = _config(file, text) if file.suffix == ".json" else {}
        if file.suffix == ".json":
            text = _template_of(config, path)
        elif (beside := file.with_name(CONFIG)).is_file():
            config = _config(beside, _read(beside))
        self._special = {name: _token(config[name]) for name in SPECIAL if config.get(name) is not None}
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                    extensions=[Generation, loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _raise, "strftime_now": datetime.now().astimezone().strftime}
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateError as error:
            line = f":{error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise _fault(f"{path}{line}: {error}") from None

    def __call__(self, chat: ChatBody | TokenizeBody) -> str:
        """Return the text of a chat. Raises Refused: the template cannot write it."""
        values = {**(chat.chat_template_kwargs or {}), **self._special,
                  "messages": [_message(each) for each in chat.messages or ()],
                  "tools": [_plain(each) for each in chat.tools] if chat.tools else None, "documents": None,
                  "add_generation_prompt": chat.add_generation_prompt is not False}
        try:
            return self._template.render(values)
        except Exception as error:      # a template fails as the Python that it is made of
            raise Refused(400, f"The chat template fails: {error}", param="messages") from None


def _message(message: ChatMessage) -> dict[str, Any]:
    """Return a message as templates read it."""
    made = {"role": message.role, "content": content_text(message.content)}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, name)) is not None:
            made[name] = value
    if message.role == "assistant" and isinstance(message.tool_calls, list) and message.tool_calls:
        made["tool_calls"] = [_call(each) for each in message.tool_calls]
    return made


def _call(call: Any) -> Any:
    """Return the call of a tool, its arguments as an object."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = msgspec.json.decode(function["arguments"] or "{}")
    except msgspec.DecodeError as error:
        raise Refused(400, f"messages: tool_calls: arguments: {error}", param="messages") from None
    return call | {"function": function | {"arguments": arguments}}


def _plain(tool: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool.function.name, "description": tool.function.description,
                                             "parameters": tool.function.parameters}}


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None,
            separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    """Return JSON, without the escapes for HTML of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _fault(text: str) -> InputErrors:
    return InputErrors([KeyFault(f"serve.chat_template: {text}")])


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise _fault(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _fault(f"{file}: {error}") from None


def _config(file: Path, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise _fault(f"{file}: {error}") from None


def _template_of(config: dict[str, Any], path: str) -> str:
    """Return the template of a tokenizer_config.json; of several, the one named default."""
    found = config.get("chat_template")
    if isinstance(found, list):
        found = next((each.get("template") for each in found if isinstance(each, dict)
                      and each.get("name") == "default"), None)
    if not isinstance(found, str):
        raise _fault(f"{path}: expected a text chat_template")
    return found


def _token(given: Any) -> str:
    """Return a special token, which may be a table."""
    return str(given.get("content", "")) if isinstance(given, dict) else str(given)
