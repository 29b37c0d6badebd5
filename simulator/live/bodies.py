"""Requests as clients write them: fields of vLLM 0.33's completions and chat completions, and its errors.

Sources: vLLM 0.33.0, entrypoints/openai (fields, defaults, statuses); vllm-project/vllm 0753ceeb,
entrypoints/serve/utils/server_utils.py (types of errors: "Bad Request" where a body is not read, "BadRequestError"
where its values do not do). Fields that have no effect here are accepted.
"""
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Logprobs = Annotated[int, Meta(ge=0, le=20)]    # at most as vLLM's --max-logprobs


UNREAD = "Bad Request"          # type of the error of a body that is not read


class Refused(Exception):
    """A request that is answered by an error.

    status, type : as vLLM's; param : the field at fault, or None.
    """

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None,
                 headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status, self.message, self.kind, self.param, self.headers = status, message, kind, param, headers or {}

    def body(self) -> bytes:
        """Return the body of the answer, and an event of a stream."""
        return msgspec.json.encode({"error": self._fields()})

    def body_of_sglang(self, is_own: bool) -> bytes:
        """Return the body as SGLang writes it. is_own : of one of its own paths."""
        return msgspec.json.encode({"error": {"message": self.message}} if is_own else
                                   {"object": "error"} | self._fields())

    def _fields(self) -> dict:
        return {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}


class NoRoute(Refused):
    """A path, or a method of it, that there is not: FastAPI's own error."""

    def __init__(self, status: int, phrase: str):
        super().__init__(status, phrase, phrase)

    def body(self) -> bytes:
        """See Refused."""
        return msgspec.json.encode({"detail": self.message})

    def body_of_sglang(self, is_own: bool) -> bytes:
        """See Refused."""
        return self.body()


class StreamOptions(msgspec.Struct):
    """Field `stream_options`; `include_usage` is true in vLLM, false in SGLang."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = False


class JsonSchema(msgspec.Struct):
    """Field `json_schema` of a response format."""

    schema: Any = True
    name: str | None = None


class ResponseFormat(msgspec.Struct):
    """Field `response_format`."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None

    def __post_init__(self):
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("response_format of type json_schema: json_schema is missing")


class StructuredOutputs(msgspec.Struct):
    """Field `structured_outputs`: one of its fields is given."""

    json: Any = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None

    def __post_init__(self):
        given = [name for name in self.__struct_fields__ if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            raise ValueError("structured_outputs: expected one of json, regex, choice, grammar, json_object, "
                             f"structural_tag, found {', '.join(given) or 'none'}")
        if self.choice is not None and not self.choice:
            raise ValueError("structured_outputs: choice: expected at least one")


class Function(msgspec.Struct):
    """A function that a tool names."""

    name: Annotated[str, Meta(min_length=1)]
    parameters: Any = None
    description: str | None = None


class Tool(msgspec.Struct):
    """One of `tools`."""

    function: Function
    type: Literal["function"] = "function"


class NamedTool(msgspec.Struct):
    """Field `tool_choice` that names a tool."""

    function: Function
    type: Literal["function"] = "function"


class Body(msgspec.Struct, kw_only=True):
    """Fields of both."""

    model: str | None = None
    max_tokens: Positive | None = None
    min_tokens: Natural | None = 0
    ignore_eos: bool | None = False
    n: Annotated[int, Meta(ge=1, le=128)] | None = 1
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stream_interval: Positive | None = None
    priority: Annotated[int, Meta(ge=-2**31, le=2**31 - 1)] | None = 0
    cache_salt: Annotated[str, Meta(min_length=1)] | None = None
    session_id: str | None = None
    user: str | None = None
    request_id: str | None = None
    return_token_ids: bool | None = False
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    seed: int | None = None
    prompt_logprobs: Logprobs | None = None
    return_tokens_as_token_ids: bool | None = False
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    use_beam_search: bool | None = False

    def __post_init__(self):
        if self.prompt_logprobs is not None and self.stream:
            raise ValueError("`prompt_logprobs` are not available when `stream=True`.")

    @property
    def stops(self) -> list[str]:
        """Texts that end an answer."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class CompletionBody(Body, kw_only=True):
    """Body of POST /v1/completions."""

    prompt: str | list[int | str | list[int]]       # ids of one prompt, or prompts
    max_tokens: Natural | None = None
    logprobs: Logprobs | None = None
    echo: bool | None = False
    suffix: str | None = None
    add_special_tokens: bool | None = True

    def __post_init__(self):
        super().__post_init__()
        if self.echo and self.prompt_logprobs is None:
            self.prompt_logprobs = self.logprobs        # as in vLLM, in streams, too

    @property
    def is_echo_alone(self) -> bool:
        """Whether the prompt is the answer; one token is generated, as in vLLM."""
        return self.max_tokens == 0 and bool(self.echo)

    @property
    def num_logprobs(self) -> int | None:
        """Tokens with log probabilities at each place; None: none at all."""
        return self.logprobs


class ChatMessage(msgspec.Struct):
    """One of the messages of a chat; templates alone read more than role and content."""

    role: str
    content: Any = None
    name: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    reasoning_content: Any = None


class ChatBody(Body, kw_only=True):
    """Body of POST /v1/chat/completions."""

    messages: list[ChatMessage]
    max_completion_tokens: Positive | None = None
    add_generation_prompt: bool | None = True
    add_special_tokens: bool | None = False
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    logprobs: bool | None = False
    top_logprobs: Logprobs | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.top_logprobs and not self.logprobs:
            raise ValueError("when using `top_logprobs`, `logprobs` must be set to true.")
        if not self.tools and (isinstance(self.tool_choice, NamedTool) or self.tool_choice == "required"):
            raise ValueError("When using `tool_choice`, `tools` must be set.")

    @property
    def num_logprobs(self) -> int | None:
        """Tokens with log probabilities at each place; None: none at all."""
        return (self.top_logprobs or 0) if self.logprobs else None


class TokenizeBody(msgspec.Struct, kw_only=True):
    """Body of POST /tokenize."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_generation_prompt: bool | None = True
    add_special_tokens: bool | None = None      # None: around a prompt, not around a chat
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    return_token_strs: bool | None = False


class DetokenizeBody(msgspec.Struct, kw_only=True):
    """Body of POST /detokenize."""

    model: str | None = None
    tokens: list[Natural] = field(default_factory=list)


RANGE = re.compile(r"Expected `(int|float)` [<>]")           # begin of msgspec's message on a value out of range
# Fields that cannot be served -> values that ask for nothing.
UNSERVED = {"use_beam_search": (None, False), "suffix": (None, "")}


def read_body(data: bytes, kind: type) -> tuple[Any, list[str]]:
    """Return a body and the names of its fields that are not known.

    Raises Refused: it is no JSON object, or a field is wrong, or asks for what cannot be served.
    """
    try:
        found = msgspec.json.decode(data)
        body = msgspec.convert(found, kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:      # ValidationError is one, too
        text = str(error)
        param = text.rpartition("`$.")[2].partition("`")[0] if "`$." in text else None
        raise Refused(400, text, "BadRequestError" if RANGE.match(text) else UNREAD, param) from None
    if "stream_options" in kind.__struct_fields__ and found.get("stream_options") and not found.get("stream"):
        raise Refused(400, "Stream options can only be defined when `stream=True`.", UNREAD, "stream_options")
    for name, plain in UNSERVED.items():
        if getattr(body, name, None) not in plain:
            raise Refused(501, f"{name}: a simulated model cannot do this", "NotImplementedError", name)
    return body, [name for name in found if name not in kind.__struct_fields__]


def chat_text(chat: ChatBody | TokenizeBody) -> str:
    """Return a chat as one text.

    Role and content of each message, and the beginning of the answer.
    """
    parts = [f"<|{each.role}|>\n{content_text(each.content)}\n" for each in chat.messages or ()]
    return "".join(parts) + "<|assistant|>\n" * (chat.add_generation_prompt is not False)


def content_text(content: Any) -> str:
    """Return the text of a message's content, a text or a list of parts.

    Raises Refused: a part is no text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) and part.get("type") in ("text", "input_text") else part
                 for part in content]
        if all(isinstance(text, str) for text in texts):
            return "\n".join(texts)
    raise Refused(400, "messages: the simulated model takes text alone", param="messages")
