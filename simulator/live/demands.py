"""Demands on the form of an answer: JSON, a choice, a pattern, or the call of a tool; a short text for each."""
from typing import NamedTuple

import msgspec

from simulator.live.bodies import ChatBody, CompletionBody, NamedTool, Refused
from simulator.live.instances import smallest
from simulator.live.patterns import NoText, shortest_match

EMPTY = {"type": "object"}


class Demand(NamedTuple):
    """A text that an answer must be.

    tool : name of the function that it is the arguments of; None: it is the answer.
    """

    text: str
    tool: str | None = None


def demand_of(body: ChatBody | CompletionBody, tool_calls: str) -> Demand | None:
    """Return the demand of a request; None: it has none.

    tool_calls : key of [serve]. Raises Refused: no text is known that meets it.
    """
    try:
        if isinstance(body, ChatBody) and (found := _call(body, tool_calls)) is not None:
            return found
        text = _text(body)
    except NoText as fault:
        raise Refused(400, f"The demanded form of the answer cannot be met: {fault}") from None
    return None if text is None else Demand(text)


def _call(body: ChatBody, tool_calls: str) -> Demand | None:
    choice, tools = body.tool_choice, {tool.function.name: tool.function for tool in body.tools or ()}
    is_demanded = isinstance(choice, NamedTool) or choice == "required"
    if is_demanded and tool_calls == "never":
        raise Refused(501, 'tool_choice: tools are not called here ([serve] tool_calls = "never")',
                      "NotImplementedError", "tool_choice")
    if not tools or choice == "none" or not (is_demanded or tool_calls == "always"):
        return None
    name = choice.function.name if isinstance(choice, NamedTool) else next(iter(tools))
    if name not in tools:
        raise Refused(400, f"The tool specified in `tool_choice` does not match any of the specified `tools`: {name}",
                      param="tool_choice")
    return Demand(smallest(tools[name].parameters or EMPTY), name)


def _text(body: ChatBody | CompletionBody) -> str | None:
    given, form = body.structured_outputs, body.response_format
    if given is None:
        if form is None or form.type == "text":
            return None
        return smallest(EMPTY if form.type == "json_object" else form.json_schema.schema)
    if given.choice is not None:
        return given.choice[0]
    if given.regex is not None:
        return shortest_match(given.regex)
    if given.json is not None:
        return smallest(_schema(given.json))
    if given.json_object:
        return smallest(EMPTY)
    raise Refused(501, "structured_outputs: texts of grammars and structural tags are not searched for",
                  "NotImplementedError", "structured_outputs")


def _schema(given: object) -> object:
    """Return a schema, which may be given as text."""
    if not isinstance(given, str):
        return given
    try:
        return msgspec.json.decode(given.encode(errors="surrogatepass"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoText(f"json: {error}") from None
