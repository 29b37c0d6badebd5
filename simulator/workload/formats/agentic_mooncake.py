"""`agentic_mooncake`: JSON Lines of requests with typed dependencies, version 2, below a header.

Source: ai-dynamo/aisimulate, crates/core/src/replay/loadgen/types.rs, AgenticMooncakeHeader and AgenticMooncakeRow. Ids
are unique within a play. A row waits for its dependencies and does not come before its not_before_ms, counted from
the not_before_ms of the play's first root. The first play becomes time 0. Dynamo serves high priorities first; here
they change sign. Models, token ids and recorded times are ignored.
"""
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors
from simulator.workload.columns import Columns, Prompts
from simulator.workload.formats.agent_graphs import AgentGraphs, ns_of_ms
from simulator.workload.formats.blocks import run_prompts
from simulator.workload.formats.json_lines import check_blocks
from simulator.workload.formats.mooncake import Milliseconds, OutputTokens, PromptTokens, check_ids, named
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.files import check_text
from simulator.workload.reading.json_lines import decoded_lines, numbered_lines, refuse

HEADER = "schema, version, block_size, hash_id_scope"
NEEDED = "request_id, play_id, input_length, output_length, hash_ids, not_before_ms"


class Header(msgspec.Struct):
    """The first line."""

    schema: Literal["dynamo.agentic_mooncake"]
    version: Literal[2]
    block_size: Annotated[int, Meta(ge=1, le=2**20)]
    hash_id_scope: Literal["local"]


class Dependency(msgspec.Struct, gc=False):
    """A dependency of a request."""

    request_id: str
    trigger: Literal["dispatch", "completion"]
    delay_ms: Milliseconds
    relation: Literal["sequence", "spawn", "join", "replay_barrier"]


class Line(msgspec.Struct, gc=False):
    """One request."""

    request_id: str
    play_id: str
    not_before_ms: Milliseconds
    input_length: PromptTokens
    output_length: OutputTokens
    hash_ids: list[Annotated[int, Meta(ge=0)]]
    source_play_ordinal: Annotated[int, Meta(ge=0)] | None = None
    session_id: str | None = None
    priority: Annotated[int, Meta(ge=-2**31 + 1, le=2**31 - 1)] | None = None
    strict_priority: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None
    policy_class: str | None = None
    dependencies: list[Dependency] = []


class AgenticMooncake:
    """The reader of agentic Mooncake traces."""

    def __init__(self, parameters=None):
        pass

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, play by play.

        Raises
        ------
        InputErrors
            All faults of the file, by line.
        """
        check_text(path, data)
        faults = Faults(path)
        number, header = _header(data, faults)
        lines = decoded_lines(data, Line, NEEDED, faults, after=number)
        faults.raise_if_any()
        if not lines:
            raise InputErrors([f"{path}: there are no requests below the header"])
        lines = _by_play(lines, faults)
        for number, line in lines:
            check_blocks(number, line, header.block_size, faults)
        graphs = _graphs(lines, faults)
        faults.raise_if_any()
        return graphs.columns(_prompts([line for _, line in lines], graphs.plays, header.block_size), **named(lines))


def _header(data: bytes, faults: Faults) -> tuple[int, Header]:
    number, text = next(numbered_lines(data), (1, data))        # a byte order mark alone is no line
    try:
        return number, msgspec.json.decode(text, type=Header)
    except (msgspec.DecodeError, RecursionError) as error:
        refuse(number, text, error, HEADER, faults)
        faults.raise_if_any()
        raise


def _by_play(lines: list[tuple[int, Line]], faults: Faults) -> list[tuple[int, Line]]:
    """Return the lines by play; plays by ordinal if they have one, else by their first line."""
    first_line, ordinals = {}, {}
    for number, line in lines:
        first_line.setdefault(line.play_id, number)
        ordinal = ordinals.setdefault(line.play_id, line.source_play_ordinal)
        if ordinal != line.source_play_ordinal:
            faults.add(number, f"source_play_ordinal: expected {_shown(ordinal)}, that of the play's first line, "
                               f"found {_shown(line.source_play_ordinal)}")
    given = [ordinal for ordinal in ordinals.values() if ordinal is not None]
    if given and sorted(given) != list(range(len(ordinals))):
        faults.add(0, f"source_play_ordinal: expected each of 0 to {len(ordinals) - 1} for one play, or none at all")
        return lines
    place = ordinals if given else first_line
    return sorted(lines, key=lambda each: place[each[1].play_id])


def _shown(ordinal: int | None) -> str:
    return "none" if ordinal is None else str(ordinal)


def _graphs(lines: list[tuple[int, Line]], faults: Faults) -> AgentGraphs:
    rows, graphs, codes, begins_ms = check_ids(lines, faults), AgentGraphs(), {}, {}
    for _, line in lines:
        if not line.dependencies:
            begins_ms[line.play_id] = min(line.not_before_ms, begins_ms.get(line.play_id, line.not_before_ms))
    first_ms = min(begins_ms.values(), default=0.0)
    for row, (_, line) in enumerate(lines):
        offset_ms = max(0.0, line.not_before_ms - begins_ms.get(line.play_id, 0.0))
        at_ns = 0 if line.dependencies else ns_of_ms(line.not_before_ms - first_ms)
        graphs.add(codes.setdefault(line.play_id, len(codes)), line.input_length, line.output_length, at_ns=at_ns,
                   not_before_ns=ns_of_ms(offset_ms) if line.dependencies else 0)
        for dependency in line.dependencies:
            _wait(graphs, lines, rows, row, dependency, faults)
    for row in graphs.rows_in_cycles():
        faults.add(lines[row][0], "dependencies: the request waits for itself, by way of others")
    return graphs


def _wait(graphs: AgentGraphs, lines, rows: dict[str, int], row: int, dependency: Dependency, faults: Faults) -> None:
    number, line = lines[row]
    source = rows.get(dependency.request_id)
    if source is None:
        faults.add(number, f"dependencies: expected the request_id of a line, found {quoted(dependency.request_id)}")
    elif lines[source][1].play_id != line.play_id:
        faults.add(number, f"dependencies: expected a request of play {quoted(line.play_id)}, found "
                           f"{quoted(dependency.request_id)}, one of {quoted(lines[source][1].play_id)}")
    elif dependency.trigger == "dispatch" and dependency.relation != "spawn":
        faults.add(number, f'dependencies: trigger "dispatch" is for relation "spawn", found "{dependency.relation}"')
    else:
        graphs.wait(source, row, ns_of_ms(dependency.delay_ms), dependency.trigger == "dispatch")


def _prompts(lines: list[Line], plays: list[int], block_size: int) -> Prompts:
    """Return prompts with ids scoped to their play."""
    scoped = {}
    ids = [[scoped.setdefault((play, each), len(scoped)) for each in line.hash_ids]
           for play, line in zip(plays, lines, strict=True)]
    return run_prompts(ids, block_size, np.array([line.input_length for line in lines], dtype=np.int64))[0]
