"""`llmservingsim`: JSON Lines of LLMServingSim 2: flat requests, and sessions.

Source: casys-kaist/LLMServingSim, docs/docs/workloads/{jsonl-format,agentic-sessions}.md: input_toks, output_toks,
arrival_time_ns, input_tok_ids, output_tok_ids; session_id and sub_requests with tool_duration_ns, from the end of one
to the next. `input_toks` is the whole prompt; without token ids it is not shared. Times stay as they are.
"""
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import number_of
from simulator.workload.columns import Columns
from simulator.workload.formats.agent_graphs import AgentGraphs
from simulator.workload.formats.blocks import run_prompts
from simulator.workload.formats.json_lines import JsonLines
from simulator.workload.formats.mooncake import OutputTokens, PromptTokens
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.faults import Faults

Nanoseconds = Annotated[int, Meta(ge=0, le=MAX_TIME_NS)]
Token = Annotated[int, Meta(ge=-2**31, le=2**31 - 1)]
NEEDED = "arrival_time_ns, and input_toks and output_toks or sub_requests"


class SubRequest(msgspec.Struct, gc=False):
    """One request of a session."""

    input_toks: PromptTokens
    output_toks: OutputTokens
    tool_duration_ns: Nanoseconds = 0
    input_tok_ids: list[Token] | None = None


class Line(msgspec.Struct, gc=False):
    """One request, or a session."""

    arrival_time_ns: Nanoseconds
    input_toks: PromptTokens | None = None
    output_toks: OutputTokens | None = None
    input_tok_ids: list[Token] | None = None
    session_id: str | int | None = None
    sub_requests: list[SubRequest] | None = None


class LlmServingSim(JsonLines):
    """The reader of LLMServingSim's traces."""

    kind, needed = Line, NEEDED

    def check(self, number: int, line: Line, faults: Faults) -> None:
        if line.sub_requests is None:
            for key in ("input_toks", "output_toks"):
                if getattr(line, key) is None:
                    faults.add(number, f"expected a JSON object with {NEEDED}: Object missing required field `{key}`")
                    return
        elif not line.sub_requests:
            faults.add(number, "sub_requests: a session needs one request at least, found none")
        for request in _requests(line):
            ids = request.input_tok_ids
            if ids is not None and len(ids) != request.input_toks:
                faults.add(number, f"input_tok_ids: expected {number_of(request.input_toks, 'id')} (input_toks), "
                                   f"found {len(ids)}")

    def columns(self, lines: list[tuple[int, Line]], faults: Faults) -> Columns:
        graphs, texts = AgentGraphs(), []
        for play, (_, line) in enumerate(lines):
            for turn, request in enumerate(requests := _requests(line)):
                row = graphs.add(play, request.input_toks, request.output_toks, at_ns=line.arrival_time_ns)
                if turn:
                    graphs.wait(row - 1, row, requests[turn - 1].tool_duration_ns)
                graphs.sessions.append(None if line.session_id is None else str(line.session_id))
                texts.append(request.input_tok_ids)
        return graphs.columns(_prompts(texts, np.array(graphs.prompt_tokens, dtype=np.int64)))


def _requests(line: Line) -> list[SubRequest]:
    if line.sub_requests is not None:
        return line.sub_requests
    return [SubRequest(line.input_toks, line.output_toks, 0, line.input_tok_ids)]


def _prompts(texts: list[list[int] | None], prompt_tokens: np.ndarray):
    """Return prompts in which equal beginnings are shared."""
    nodes = {}              # a text so far and its next token -> the code of the longer text
    paths = []
    for text in texts:
        at, path = -1, []
        for token in text or ():
            at = nodes.setdefault((at, token), len(nodes))
            path.append(at)
        paths.append(path)
    return run_prompts(paths, 1, prompt_tokens)[0]
