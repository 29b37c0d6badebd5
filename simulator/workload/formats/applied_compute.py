"""`applied_compute`: JSON Lines of agents that use tools, one play a line.

Source: ai-dynamo/aisimulate, crates/core/src/replay/loadgen/trace.rs, applied_compute_agentic. A play of n turns has
n + 1 requests: the prompt of each is the prompt before, the output before and the tool's result, and it comes as long
after the end of the request before as the tool took. The file has no start times of plays.
"""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.workload.columns import Columns
from simulator.workload.formats.agent_graphs import AgentGraphs, extended, length_of, ns_of_s, output_of, own_of
from simulator.workload.formats.json_lines import JsonLines
from simulator.workload.formats.mooncake import OutputTokens, PromptTokens
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.reading.faults import Faults

Seconds = Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 1e9)]
OF_TURNS = ("assistant_response_length", "tool_call_output_length", "tool_call_latency")


class Line(msgspec.Struct, gc=False):
    """One play."""

    num_turns: Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
    input_prompt_length: PromptTokens
    assistant_response_length: list[OutputTokens]
    tool_call_output_length: list[OutputTokens]
    tool_call_latency: list[Seconds]
    final_assistant_response_length: OutputTokens


class AppliedCompute(JsonLines):
    """The reader of Applied Compute's traces of agents."""

    kind, needed = Line, ", ".join(Line.__struct_fields__)

    def check(self, number: int, line: Line, faults: Faults) -> None:
        for key in OF_TURNS:
            if len(getattr(line, key)) != line.num_turns:
                faults.add(number, f"{key}: expected {line.num_turns} numbers (num_turns), "
                                   f"found {len(getattr(line, key))}")

    def columns(self, lines: list[tuple[int, Line]], faults: Faults) -> Columns:
        graphs = AgentGraphs()
        for play, (number, line) in enumerate(lines):
            _add(graphs, play, line)
            if (tokens := length_of(graphs.histories[-1])) > MAX_TOKENS:
                faults.add(number, f"the last prompt has {tokens} tokens, at most {MAX_TOKENS} are possible")
        return graphs.columns(has_times=False)


def _add(graphs: AgentGraphs, play: int, line: Line) -> None:
    row = len(graphs)
    history = [own_of(row, line.input_prompt_length)]
    graphs.histories.append(history)
    outputs = [*line.assistant_response_length, line.final_assistant_response_length]
    graphs.add(play, line.input_prompt_length, outputs[0])
    tokens = line.input_prompt_length
    for turn, (added, latency_s) in enumerate(zip(line.tool_call_output_length, line.tool_call_latency, strict=True)):
        row = len(graphs)
        history = extended(history, output_of(row - 1, outputs[turn]), own_of(row, added))
        tokens += outputs[turn] + added
        graphs.histories.append(history)
        graphs.add(play, tokens, outputs[turn + 1])
        graphs.wait(row - 1, row, ns_of_s(latency_s))
