"""`dynamo`: JSON Lines of Dynamo's request traces, dynamo.request.trace.v1.

Source: ai-dynamo/aisimulate, crates/core/src/replay/loadgen/dynamo.rs. Used are request_end, tool_end and tool_error;
request_payload and tool_start are skipped. Without agent_context requests come at their recorded times. With it a
request of a session waits for the end of the request before it. The first request of a child session waits for the
arrival of its caller, and the user of its result for the end of its last request: tools name both, else they are the
parent's latest request that had begun, and its first one after the child's end. The first request becomes time 0.
"""
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors
from simulator.workload.columns import Columns
from simulator.workload.formats.agent_graphs import AgentGraphs, components
from simulator.workload.formats.blocks import run_prompts
from simulator.workload.formats.mooncake import Milliseconds, OutputTokens, PromptTokens
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.files import check_text
from simulator.workload.reading.json_lines import numbered_lines, refuse

SCHEMA = "dynamo.request.trace.v1"
NEEDED = "schema, event_type, event_time_unix_ms"
PASSED_OVER = ("request_payload", "tool_start")
UnixMs = Annotated[int, Meta(ge=0, le=MAX_TIME_NS // 10**6)]


class AgentContext(msgspec.Struct, gc=False):
    """The session of a request."""

    session_id: Annotated[str, Meta(min_length=1)]
    parent_session_id: str | None = None


class Replay(msgspec.Struct, gc=False):
    """The prompt of a request."""

    trace_block_size: Annotated[int, Meta(ge=1, le=2**20)]
    input_length: PromptTokens
    input_sequence_hashes: list[Annotated[int, Meta(ge=0)]]


class Request(msgspec.Struct, gc=False):
    """One request."""

    request_id: Annotated[str, Meta(min_length=1)]
    output_tokens: OutputTokens
    replay: Replay
    request_received_ms: UnixMs | None = None
    total_time_ms: Milliseconds | None = None


class Claude(msgspec.Struct, gc=False):
    """The caller of a tool, and the request that uses its result."""

    source_request_id: str
    execution_mode: Literal["blocking", "background"]
    consumer_request_id: str | None = None
    child_session_id: str | None = None


class Tool(msgspec.Struct, gc=False):
    """One call of a tool."""

    claude: Claude | None = None


class Record(msgspec.Struct, gc=False):
    """One event."""

    schema: Literal["dynamo.request.trace.v1"]
    event_type: str
    event_time_unix_ms: UnixMs
    agent_context: AgentContext | None = None
    request: Request | None = None
    tool: Tool | None = None


class Kind(msgspec.Struct):
    """The type of a line's event; writers may wrap it."""

    event_type: str | None = None
    event: msgspec.Raw = msgspec.Raw()


class Entry(NamedTuple):
    """One request with its recorded times, ms; entries sort by the times."""

    start_ms: int
    end_ms: int
    request_id: str
    place: tuple[Faults, int]           # where its faults are added, and its line
    context: AgentContext | None
    request: Request


class Dynamo:
    """The reader of Dynamo's request traces.

    A directory is one trace in several files.
    """

    SUFFIXES = (".jsonl",)

    def __init__(self, parameters=None):
        pass

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, by their recorded start.

        Raises
        ------
        InputErrors
            All faults of the file, by line.
        """
        return self.read_files([(str(path), data)])

    def read_files(self, files: Iterable[tuple[str, bytes]]) -> Columns:
        """Return the requests of all files by their recorded start.

        files : pairs of path and content.
        """
        entries, tools, all_faults = [], [], []
        for path, data in files:
            check_text(path, data)
            all_faults.append(Faults(path))
            _collect(data, all_faults[-1], entries, tools)
        for faults in all_faults:
            faults.raise_if_any()
        if not entries:
            raise InputErrors([f"{all_faults[0].path}: there is no request_end in it"])
        entries.sort(key=lambda entry: entry[:3])
        _check(entries)
        if any(entry.context is None for entry in entries):     # for all requests, or there are faults
            for faults in all_faults:
                faults.raise_if_any()
        graphs = AgentGraphs()
        for row, entry in enumerate(entries):
            graphs.add(row, entry.request.replay.input_length, entry.request.output_tokens,
                       at_ns=(entry.start_ms - entries[0].start_ms) * 10**6)
            graphs.request_ids.append(entry.request_id)
        if entries[0].context is not None:
            Sessions(entries, graphs).connect(tools)
            graphs.plays = components(len(graphs), graphs.sources, graphs.targets)
            graphs.sessions = [entry.context.session_id for entry in entries]
            for row in graphs.rows_in_cycles():
                _refuse(entries[row], "request_id: the request waits for itself, by way of others")
        for faults in all_faults:
            faults.raise_if_any()
        replays = [entry.request.replay for entry in entries]
        return graphs.columns(run_prompts([replay.input_sequence_hashes for replay in replays],
                                          replays[0].trace_block_size, np.array(graphs.prompt_tokens, np.int64))[0],
                              origin_ns=entries[0].start_ms * 10**6)


def _collect(data: bytes, faults: Faults, entries: list[Entry], tools: list) -> None:
    kinds, records = msgspec.json.Decoder(Kind), msgspec.json.Decoder(Record)
    for number, text in numbered_lines(data):
        try:
            kind = kinds.decode(text)
            if inner := bytes(kind.event):
                text = inner
                kind = kinds.decode(text)
            if kind.event_type in PASSED_OVER:
                continue
            record = records.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            refuse(number, text, error, NEEDED, faults)
            continue
        if record.event_type == "request_end":
            if record.request is None:
                faults.add(number, "request: a request_end needs it")
            else:
                entries.append(_entry(number, record, faults))
        elif record.event_type in ("tool_end", "tool_error"):
            if record.tool is not None and record.tool.claude is not None and record.agent_context is not None:
                tools.append((faults, number, record.agent_context.session_id, record.tool.claude))
        else:
            faults.add(number, "event_type: expected request_end, tool_end, tool_error, request_payload or tool_start, "
                               f"found {quoted(record.event_type)}")


def _entry(number: int, record: Record, faults: Faults) -> Entry:
    request, total_ms = record.request, record.request.total_time_ms
    start_ms, end_ms = request.request_received_ms, record.event_time_unix_ms
    duration_ms = None if total_ms is None else int(total_ms + 0.5)
    if start_ms is None:
        start_ms = max(0, end_ms - (duration_ms or 0))
    elif duration_ms is not None:
        end_ms = start_ms + duration_ms
    return Entry(start_ms, max(start_ms, end_ms), request.request_id, (faults, number), record.agent_context, request)


def _refuse(entry: Entry, text: str) -> None:
    faults, number = entry.place
    faults.add(number, text)


def _check(entries: list[Entry]) -> None:
    block_size, seen = entries[0].request.replay.trace_block_size, set()
    for entry in entries:
        replay = entry.request.replay
        if (entry.context is None) != (entries[0].context is None):
            _refuse(entry, "agent_context: expected for all requests, or for none")
        if replay.trace_block_size != block_size:
            _refuse(entry, f"trace_block_size: expected {block_size}, as in the first request, "
                           f"found {replay.trace_block_size}")
        blocks, full = -(-replay.input_length // block_size), replay.input_length // block_size
        if not full <= len(replay.input_sequence_hashes) <= blocks:
            _refuse(entry, f"input_sequence_hashes: expected {blocks}, blocks of {block_size} tokens for input_length "
                           f"{replay.input_length}, found {len(replay.input_sequence_hashes)}")
        if entry.request_id in seen:
            _refuse(entry, f"request_id: expected an id that no other request has, found {quoted(entry.request_id)}")
        seen.add(entry.request_id)


class Sessions:
    """Dependencies, from sessions and their callers."""

    def __init__(self, entries: list[Entry], graphs: AgentGraphs):
        self._entries, self._graphs = entries, graphs
        self._row_of = {entry.request_id: row for row, entry in enumerate(entries)}
        self._rows, self._parent_of, self._edges = {}, {}, set()
        for row, entry in enumerate(entries):
            session, parent = entry.context.session_id, entry.context.parent_session_id
            self._rows.setdefault(session, []).append(row)
            if parent is not None and self._parent_of.setdefault(session, parent) != parent:
                _refuse(entry, f"parent_session_id: expected {quoted(self._parent_of[session])}, as in the requests "
                               f"before it of its session, found {quoted(parent)}")

    def connect(self, tools: list) -> None:
        """Add the edges.

        tools : (faults, line, session, Claude) of each call with a session.
        """
        for rows in self._rows.values():
            for source, target in pairwise(rows):
                self._wait(source, target)
        named = self._named(tools)
        for child, parent in self._parent_of.items():
            if parent not in self._rows:
                _refuse(self._entries[self._rows[child][0]], "parent_session_id: expected the session of a request, "
                                                             f"found {quoted(parent)}")
                continue
            first = self._rows[child][0]
            last = max(self._rows[child], key=lambda row: (self._entries[row].end_ms, row))
            caller, user = named[child] if child in named else self._inferred(first, last, self._rows[parent])
            if caller is not None:
                self._wait(caller, first, from_dispatch=True)
            if user is not None:
                self._wait(last, user)

    def _named(self, tools: list) -> dict[str, tuple[int, int | None]]:
        """Return the caller of each child session and the user of its result, if a tool names them."""
        named = {}
        for faults, number, session, claude in tools:
            rows = []
            for key in ("source_request_id", "consumer_request_id"):
                name = getattr(claude, key)
                row = self._row_of.get(name)
                if name is not None and (row is None or self._entries[row].context.session_id != session):
                    faults.add(number, f"{key}: expected a request of session {quoted(session)}, found {quoted(name)}")
                rows.append(row)
            child = claude.child_session_id
            if child not in self._rows or rows[0] is None:
                continue
            if child in named:
                faults.add(number, f"child_session_id: another tool has called session {quoted(child)}")
            if self._parent_of.get(child) != session:
                faults.add(number, f"child_session_id: expected a session whose parent is {quoted(session)}, "
                                   f"found {quoted(child)}")
            named[child] = tuple(rows)
        return named

    def _inferred(self, first: int, last: int, parents: list[int]) -> tuple[int | None, int | None]:
        entries = self._entries
        begun = [row for row in parents if entries[row].start_ms <= entries[first].start_ms]
        caller = begun[-1] if begun else None
        after = max(last, -1 if caller is None else caller)         # all may have begun in one millisecond
        later = [row for row in parents if row > after and entries[row].start_ms >= entries[last].end_ms]
        return caller, later[0] if later else None

    def _wait(self, source: int, target: int, from_dispatch: bool = False) -> None:
        if (source, target, from_dispatch) in self._edges:
            return
        self._edges.add((source, target, from_dispatch))
        since_ms = self._entries[source].start_ms if from_dispatch else self._entries[source].end_ms
        delay_ms = max(0, self._entries[target].start_ms - since_ms)
        self._graphs.wait(source, target, delay_ms * 10**6, from_dispatch)
