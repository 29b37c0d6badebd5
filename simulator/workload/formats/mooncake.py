"""`mooncake`: JSON Lines with hashed prompt blocks, one request a line; sessions, and graphs of requests.

Sources: github.com/kvcache-ai/Mooncake, FAST25-release/traces: timestamp (ms), input_length, output_length, hash_ids;
ai-dynamo/aisimulate, crates/core/src/replay/loadgen/{types,trace}.rs: created_time, input_tokens, output_tokens,
request_id, session_id, delay or delay_ms, priority, policy_class; wait_for and tool_wait_ms. A hash id identifies a
block of tokens and all before it; the last block may be partial. Other keys are ignored.

A later line of a session comes `delay` after the end of the line before, without delay as long after it as their
timestamps are apart. If a line has `wait_for`, the file is a graph: such lines come `delay` + `tool_wait_ms` after the
ends of the lines in `wait_for`; sessions then are labels. Dynamo serves high priorities first; here they change sign.
"""
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.columns import Columns, nearest
from simulator.workload.formats.agent_graphs import AgentGraphs, coded, components, ns_of_ms
from simulator.workload.formats.blocks import block_prompts
from simulator.workload.formats.json_lines import JsonLines, check_blocks
from simulator.workload.formats.mooncake_scan import STRICT_PRIORITY, columns_of
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.reading.epochs import epoch_unit_s, unit_note
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.json_scan import JsonScan

Milliseconds = Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 1e6)]
Timestamp = Annotated[float, Meta(ge=0, le=9e18)]
PromptTokens = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
OutputTokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
HashId = Annotated[int, Meta(ge=-2**63, le=2**63 - 1)]
NEEDED = "timestamp, input_length, output_length"


class Line(msgspec.Struct, gc=False):
    """One request."""

    timestamp: Timestamp | None = None
    created_time: Timestamp | None = None
    input_length: PromptTokens | None = None
    input_tokens: PromptTokens | None = None
    output_length: OutputTokens | None = None
    output_tokens: OutputTokens | None = None
    hash_ids: list[HashId] | None = None
    request_id: str | int | None = None
    session_id: str | int | None = None
    delay: Milliseconds | None = None
    delay_ms: Milliseconds | None = None
    wait_for: list[str | int] | None = None
    tool_wait_ms: Milliseconds | None = None
    priority: Annotated[int, Meta(ge=-2**31 + 1, le=2**31 - 1)] | None = None
    strict_priority: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None
    policy_class: str | None = None

    def stands_alone(self) -> bool:
        """Return whether it comes at its own time and is in no session or graph."""
        return self.timestamp is not None and self.session_id is None and self.wait_for is None and self.delay is None

    def settle(self, block_size: int) -> str | None:
        """Choose between two names of a value; return the name of a missing value."""
        if not (self.timestamp is None or self.input_length is None or self.output_length is None or self.delay_ms):
            return None
        if self.timestamp is None:
            self.timestamp = self.created_time
        if self.delay is None:
            self.delay = self.delay_ms
        if self.output_length is None:
            self.output_length = self.output_tokens
        if self.input_length is None:
            self.input_length = self.input_tokens or (len(self.hash_ids) * block_size if self.hash_ids else None)
        return next((name for name in ("input_length", "output_length") if getattr(self, name) is None), None)


class MooncakeParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values that the lines lack."""

    block_size: Annotated[int, Meta(ge=1, le=2**20, description=(
        "tokens behind one hash id; Mooncake's traces have 512, traces of agents often 16"))] = 512


class Mooncake(JsonLines):
    """The reader of Mooncake traces; without hash_ids a prompt is not shared."""

    Parameters = MooncakeParameters
    scans, kind, needed = True, Line, NEEDED

    def check(self, number: int, line: Line, faults: Faults) -> None:
        block_size = self.parameters.block_size
        if missing := line.settle(block_size):
            _refuse_missing(number, missing, faults)
        elif line.hash_ids is not None:
            check_blocks(number, line, block_size, faults, "; is block_size right?")

    def scanned(self, path: str | Path, scan: JsonScan) -> Columns | None:
        return columns_of(path, scan, self.parameters.block_size)

    def columns(self, lines: list[tuple[int, Line]], faults: Faults) -> Columns:
        notes = in_milliseconds(lines, faults)
        faults.raise_if_any()
        waits = {}
        if all(line.stands_alone() for _, line in lines):
            arrival_ns = nearest(np.array([line.timestamp for _, line in lines]) * 1e6)
        else:
            graphs = graphs_of(lines, faults)
            faults.raise_if_any()
            arrival_ns, waits = np.array(graphs.arrival_ns, dtype=np.int64), {"waits": graphs.waits()}
        prompt_tokens = np.array([line.input_length for _, line in lines], dtype=np.int64)
        output_tokens = np.array([line.output_length for _, line in lines], dtype=np.int64)
        prompts = block_prompts([line.hash_ids for _, line in lines], self.parameters.block_size, prompt_tokens)
        return Columns(arrival_ns, prompt_tokens, output_tokens, prompts=prompts, **named(lines, notes), **waits)


def in_milliseconds(lines: list[tuple[int, Line]], faults: Faults) -> tuple[str, ...]:
    """Convert timestamps to ms; return a note if their unit is another one."""
    given = [(number, line) for number, line in lines if line.timestamp is not None]
    unit_s = epoch_unit_s(min((line.timestamp for _, line in given), default=0.0), "ms")
    for number, line in given:
        if unit_s != 1e-3:
            line.timestamp *= unit_s * 1e3
        if line.timestamp > MAX_TIME_NS / 1e6:
            faults.add(number, f"timestamp: expected a number <= {MAX_TIME_NS / 1e6}, found {line.timestamp}")
    return unit_note(faults.path, "timestamp", unit_s, "ms")


def graphs_of(lines: list[tuple[int, Line]], faults: Faults) -> AgentGraphs:
    """Return the requests and their dependencies, without prompts."""
    if any(line.wait_for for _, line in lines):
        return _dependency_graphs(lines, faults)
    graphs, last, codes = AgentGraphs(), {}, {}
    for row, (number, line) in enumerate(lines):
        key = row if line.session_id is None else str(line.session_id)
        source, before = last.get(key, (None, None))
        play = codes.setdefault(key, len(codes))
        at_ns = 0
        if before is None:
            at_ns = _root_ns(number, line, "the first line of a session", faults)
        else:
            graphs.wait(source, row, _delay_ns(number, line, before, faults))
        graphs.add(play, line.input_length, line.output_length, at_ns=at_ns)
        last[key] = row, line
    return graphs


def named(lines: list[tuple[int, Line]], notes: tuple[str, ...] = ()) -> dict:
    """Return the columns that only some files have: ids, labels, priorities, notes."""
    columns = {"labels": {}, "notes": notes}
    if any(line.request_id is not None for _, line in lines):
        columns["request_ids"] = [str(row if line.request_id is None else line.request_id)
                                  for row, (_, line) in enumerate(lines)]
    for label, key in (("session", "session_id"), ("slo_class", "policy_class")):
        values = [getattr(line, key) for _, line in lines]
        if any(value is not None for value in values):
            columns["labels"][label] = coded([None if value is None else str(value) for value in values])
    if any(line.priority for _, line in lines):
        columns["priority"] = -np.array([line.priority or 0 for _, line in lines], dtype=np.int64)
    if tiers := sum(bool(line.strict_priority) for _, line in lines):
        columns["notes"] += (STRICT_PRIORITY.format(tiers),)
    return columns


def check_ids(lines: list[tuple[int, Line]], faults: Faults) -> dict[str, int]:
    """Return the row of each request_id; add a fault for each duplicate."""
    rows = {}
    for row, (number, line) in enumerate(lines):
        name = str(row if line.request_id is None else line.request_id)
        first = rows.setdefault(name, row)
        if first != row:
            faults.add(number, f"request_id: expected an id that is not that of line {lines[first][0]}, "
                               f"found {quoted(name)}")
    return rows


def _dependency_graphs(lines: list[tuple[int, Line]], faults: Faults) -> AgentGraphs:
    rows, graphs = check_ids(lines, faults), AgentGraphs()
    for row, (number, line) in enumerate(lines):
        at_ns = 0
        if line.wait_for:
            if line.timestamp is not None:
                faults.add(number, f"timestamp: stands on lines that wait for nobody, found {line.timestamp:g}")
            delay_ns = ns_of_ms((line.delay or 0.0) + (line.tool_wait_ms or 0.0))
            for name in dict.fromkeys(map(str, line.wait_for)):
                if name in rows:
                    graphs.wait(rows[name], row, delay_ns)
                else:
                    faults.add(number, f"wait_for: expected the request_id of a line, found {quoted(name)}")
        else:
            at_ns = _root_ns(number, line, "a line that waits for nobody", faults)
        graphs.add(0, line.input_length, line.output_length, at_ns=at_ns)
    for row in graphs.rows_in_cycles():
        faults.add(lines[row][0], "wait_for: the request waits for itself, by way of others")
    graphs.plays = components(len(graphs), graphs.sources, graphs.targets)
    return graphs


def _root_ns(number: int, line: Line, what: str, faults: Faults) -> int:
    if line.timestamp is None:
        _refuse_missing(number, "timestamp", faults)
        return 0
    if line.delay is not None:
        faults.add(number, f"delay: {what} has nothing to wait for, found {line.delay:g}")
    return ns_of_ms(line.timestamp)


def _delay_ns(number: int, line: Line, before: Line, faults: Faults) -> int:
    if line.delay is not None:
        return ns_of_ms(line.delay)
    if line.timestamp is None or before.timestamp is None:
        faults.add(number, "delay: expected one, or a timestamp on this line and on the one before it in its session")
        return 0
    if line.timestamp < before.timestamp:
        faults.add(number, f"timestamp: expected at least that of the line before it in its session, "
                           f"{before.timestamp:g}, found {line.timestamp:g}")
        return 0
    return ns_of_ms(line.timestamp) - ns_of_ms(before.timestamp)


def _refuse_missing(number: int, key: str, faults: Faults) -> None:
    faults.add(number, f"expected a JSON object with {NEEDED}: Object missing required field `{key}`")
