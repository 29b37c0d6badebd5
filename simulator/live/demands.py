"""Demands on the form of an answer: JSON, a choice, a pattern, or the call of a tool; a short text for each."""
import json
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from simulator.live.bodies import ChatBody, CompletionBody, NamedTool, Refused
from simulator.live.instances import smallest
from simulator.live.patterns import NoText, shortest_match

EMPTY = {"type": "object"}


class Demand(NamedTuple):
    """A text that an answer must be.

    tool : name of the function that it is the arguments of; None: it is the answer. grammar : name of the grammar to
    which the engine holds it, equal for equal forms; "": to none.
    """

    text: str
    tool: str | None = None
    grammar: str = ""


def demand_of(body: ChatBody | CompletionBody, tool_calls: str) -> Demand | None:
    """Return the demand of a request; None: it has none.

    tool_calls : key of [serve]. Raises Refused: no text is known that meets it.
    """
    try:
        if isinstance(body, ChatBody) and (found := _call(body, tool_calls)) is not None:
            return found
        return _formed(body)
    except NoText as fault:
        raise Refused(400, f"The demanded form of the answer cannot be met: {fault}") from None


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
    schema = tools[name].parameters or EMPTY
    return Demand(smallest(schema), name, _grammar("json", schema) if is_demanded else "")


def _formed(body: ChatBody | CompletionBody) -> Demand | None:
    given, form = body.structured_outputs, body.response_format
    if given is None:
        if form is None or form.type == "text":
            return None
        return _json(EMPTY if form.type == "json_object" else form.json_schema.schema)
    if given.choice is not None:
        return Demand(given.choice[0], grammar=_grammar("choice", given.choice))
    if given.regex is not None:
        return Demand(shortest_match(given.regex), grammar=_grammar("regex", given.regex))
    if given.json is not None:
        return _json(_schema(given.json))
    if given.json_object:
        return _json(EMPTY)
    raise Refused(501, "structured_outputs: texts of grammars and structural tags are not searched for",
                  "NotImplementedError", "structured_outputs")


def _json(schema: Any) -> Demand:
    return Demand(smallest(schema), grammar=_grammar("json", schema))


def _grammar(kind: str, form: Any) -> str:
    """Return the name of a grammar."""
    try:
        text = json.dumps(form, sort_keys=True)
    except RecursionError:
        raise NoText("the form is too deep") from None
    return f"{kind}-{blake2b(text.encode(), digest_size=8).hexdigest()}"


def _schema(given: object) -> object:
    """Return a schema, which may be given as text."""
    if not isinstance(given, str):
        return given
    try:
        return msgspec.json.decode(given.encode(errors="surrogatepass"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoText(f"json: {error}") from None
