"""`tracelab`: JSON Lines of TraceLab's coding agents, one round a line; sessions in the order of their lines.

Source: uw-syfi/TraceLab, example_sessions/sanitized and DB_SCHEMA.md. A round begins with its first timing event, but
not before all tools of the round before have answered, ends with its last timing event, and comes as long after the
end of the round before as recorded. Its prompt begins with the first prefix_tokens of its session so far; the rest is
new. The first round becomes time 0. Models are ignored.
"""
from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from simulator.workload.columns import Columns
from simulator.workload.formats.agent_graphs import AgentGraphs, cut, extended, length_of, output_of, own_of
from simulator.workload.formats.json_lines import JsonLines
from simulator.workload.formats.mooncake import OutputTokens, PromptTokens
from simulator.workload.reading.faults import Faults

NEEDED = "session_id, input_tokens_total, prefix_tokens, newly_append_tokens, output_tokens, timing_events"
BEFORE_IT = "rounds of the trace whose prefix is longer than what their session said before; the rest counts as new"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Time = Annotated[datetime, Meta(tz=True)]


class Event(msgspec.Struct, gc=False):
    """An event in a round."""

    timestamp: Time


class Tool(msgspec.Struct, gc=False):
    """A call of a tool."""

    result_at: Time | None = None


class Line(msgspec.Struct, gc=False):
    """One round."""

    session_id: str
    input_tokens_total: PromptTokens
    prefix_tokens: OutputTokens
    newly_append_tokens: OutputTokens
    output_tokens: OutputTokens
    timing_events: Annotated[list[Event], Meta(min_length=1)]
    provider: str = ""
    tools: list[Tool] = []


class Round(NamedTuple):
    """A session's last round: the time of its tools' answers, and the text so far."""

    row: int
    end_ns: int
    answered_ns: int
    history: list


class TraceLab(JsonLines):
    """The reader of TraceLab's rounds."""

    kind, needed, things = Line, NEEDED, "rounds"

    def check(self, number: int, line: Line, faults: Faults) -> None:
        if line.prefix_tokens + line.newly_append_tokens != line.input_tokens_total:
            faults.add(number, f"input_tokens_total: expected prefix_tokens + newly_append_tokens, "
                               f"{line.prefix_tokens + line.newly_append_tokens}, found {line.input_tokens_total}")

    def columns(self, lines: list[tuple[int, Line]], faults: Faults) -> Columns:
        graphs, last, codes, num_unknown = AgentGraphs(), {}, {}, 0
        for _, line in lines:
            key = line.provider, line.session_id
            before = last.get(key)
            start_ns, end_ns = _ns(line.timing_events[0].timestamp), _ns(line.timing_events[-1].timestamp)
            if before is not None:
                start_ns = max(start_ns, before.answered_ns)
            row = graphs.add(codes.setdefault(key, len(codes)), line.input_tokens_total, line.output_tokens,
                             at_ns=start_ns)
            if before is not None:
                graphs.wait(before.row, row, max(0, start_ns - before.end_ns))
            kept = [] if before is None else cut(before.history, line.prefix_tokens)
            known = min(line.prefix_tokens, length_of(kept))
            num_unknown += known < line.prefix_tokens
            graphs.histories.append(extended(kept, own_of(row, line.input_tokens_total - known)))
            graphs.sessions.append(line.session_id)
            answered_ns = max((_ns(tool.result_at) for tool in line.tools if tool.result_at is not None), default=0)
            last[key] = Round(row, max(start_ns, end_ns), answered_ns,
                              extended(graphs.histories[-1], output_of(row, line.output_tokens)))
        first_ns = min(graphs.arrival_ns)
        graphs.arrival_ns = [at_ns - first_ns for at_ns in graphs.arrival_ns]
        return graphs.columns(notes=(f"{BEFORE_IT}: {num_unknown}",) if num_unknown else (), origin_ns=first_ns)


def _ns(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1) * 1000
