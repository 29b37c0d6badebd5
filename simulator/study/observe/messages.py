"""Messages of a server: JSON of OpenAI's completions and chat completions, as vLLM sends it.

Source: vllm-project/vllm, vllm/entrypoints/openai/protocol.py (CompletionStreamResponse, ChatCompletionStreamResponse,
UsageInfo, `return_token_ids`, ErrorResponse). Further fields of a server are ignored.
"""
from typing import Any, NamedTuple

import msgspec


class Details(msgspec.Struct):
    """Tokens of a prompt from a prefix cache."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Numbers of tokens so far, or in total."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Part(msgspec.Struct):
    """The delta of a message in chat, or a whole answer."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None


class Choice(msgspec.Struct):
    """One of the answers; one is requested."""

    text: str | None = None
    delta: Part | None = None
    message: Part | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class Body(msgspec.Struct):
    """A message, or the whole answer where nothing streams."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: str | None = None
    message: Any = None


class Message(NamedTuple):
    """The content of a message.

    content : whether it holds text, reasoning or (part of) a call of a tool.
    text : of the answer, without reasoning.
    token_ids : of the message; None: the server does not list them.
    finish_reason : why the answer ends here; None: it does not.
    usage : tokens so far; None: not in the message.
    error : text of an error; None: no error.
    has_choices : False for a message with usage alone.
    """

    content: bool
    text: str
    token_ids: list[int] | None
    finish_reason: str | None
    usage: Usage | None
    error: str | None
    has_choices: bool


class NoMessage(Exception):
    """The data are no message: not UTF-8, not JSON, or of other types."""


_decode = msgspec.json.Decoder(Body).decode


def message_of(data: bytes) -> Message:
    """Return the content of a message.

    Raises
    ------
    NoMessage
        The data cannot be parsed.
    """
    try:
        body = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoMessage(f"{error}: {shown(data)}") from None
    if body.error is not None or body.object == "error":
        return Message(False, "", None, None, body.usage, _error_text(body), False)
    if not body.choices:
        return Message(False, "", None, None, body.usage, None, False)
    choice = body.choices[0]
    part, text = choice.delta or choice.message, choice.text or ""
    content = bool(text)
    if part is not None:
        text = part.content or ""
        content = bool(text or part.reasoning or part.reasoning_content or part.tool_calls or part.function_call)
    return Message(content, text, choice.token_ids, choice.finish_reason, body.usage, None, True)


def error_of(data: bytes) -> str:
    """Return the text of an answer with an error status, on one line."""
    try:
        body = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return shown(data)
    return _error_text(body) if body.error is not None or body.object == "error" else shown(data)


def shown(data: bytes, most: int = 300) -> str:
    """Return the beginning of bytes as text on one line."""
    return " ".join(data[:most].decode("utf-8", "replace").split()) + ("..." if len(data) > most else "")


def _error_text(body: Body) -> str:
    error = body.message if body.error is None else body.error
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        error = error["message"]
    return shown((error if isinstance(error, str) else msgspec.json.encode(error).decode()).encode())
