"""What one message of a server says: JSON of OpenAI's completions and chat completions, as vLLM sends it.

Source: vllm-project/vllm, vllm/entrypoints/openai/protocol.py (CompletionStreamResponse, ChatCompletionStreamResponse,
UsageInfo, `return_token_ids`, ErrorResponse). What a server adds beyond that is passed over.
"""
from typing import Any, NamedTuple

import msgspec


class Details(msgspec.Struct):
    """Which of the tokens of a prompt a prefix cache gave."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Tokens so far, or in all."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Part(msgspec.Struct):
    """What a message adds to an answer in chat, or a whole answer."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None


class Choice(msgspec.Struct):
    """One of the answers; we ask for one."""

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
    """What a message says.

    content : it holds text, reasoning or a call of a tool, if only a part of it.
    text : of the answer; reasoning is none.
    token_ids : that the server says it holds; None: it says none.
    finish_reason : why the answer ends here; None: it does not.
    usage : tokens so far; None: it does not say.
    error : what went wrong; None: nothing.
    has_choices : False for one that tells usage alone.
    """

    content: bool
    text: str
    token_ids: list[int] | None
    finish_reason: str | None
    usage: Usage | None
    error: str | None
    has_choices: bool


class NoMessage(Exception):
    """What came is no message: not UTF-8, not JSON, or of other types."""


_decode = msgspec.json.Decoder(Body).decode


def message_of(data: bytes) -> Message:
    """Return what a message says.

    Raises
    ------
    NoMessage
        It cannot be read.
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
    """Return what an answer with an error status says, on one line."""
    try:
        body = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return shown(data)
    return _error_text(body) if body.error is not None or body.object == "error" else shown(data)


def shown(data: bytes, most: int = 300) -> str:
    """Return bytes as text on one line, the beginning of it."""
    return " ".join(data[:most].decode("utf-8", "replace").split()) + ("..." if len(data) > most else "")


def _error_text(body: Body) -> str:
    told = body.message if body.error is None else body.error
    if isinstance(told, dict) and isinstance(told.get("message"), str):
        told = told["message"]
    return shown((told if isinstance(told, str) else msgspec.json.encode(told).decode()).encode())
