"""`bailian`: the traces of Qwen in Alibaba Cloud Bailian, JSON Lines with hashed blocks, one request a line.

Source: github.com/alibaba-edu/qwen-bailian-usagetraces-anon, README.md: chat_id, parent_chat_id (-1: none), timestamp
(s), input_length, output_length, type, turn, hash_ids (blocks of 16 tokens; an id identifies a block and all before
it). Each line has its whole prompt. The first request arrives at 0.
"""
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.columns import Columns, Waits, nearest
from simulator.workload.formats.blocks import block_prompts
from simulator.workload.formats.json_lines import JsonLines, check_blocks
from simulator.workload.formats.order import notes_on_order
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.reading.faults import Faults

BLOCK_TOKENS = 16
NO_PARENT = -1


class Line(msgspec.Struct):
    """One request."""

    chat_id: int
    parent_chat_id: int
    timestamp: Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 1e9)]
    input_length: Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
    output_length: Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
    hash_ids: list[Annotated[int, Meta(ge=-2**63, le=2**63 - 1)]]


class BailianParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dependencies of turns."""

    mode: Annotated[Literal["open", "sessions"], Meta(description=(
        "open: all requests come at their times; sessions: a turn waits for the end of the turn before it"))] = "open"
    gap: Annotated[Literal["absolute", "recorded"], Meta(description=(
        "of sessions: absolute: a turn comes at its time, or when the turn before it ends, if that is later; recorded: "
        "as long after that end as their times are apart"))] = "absolute"

    def __post_init__(self):
        if self.mode == "open" and self.gap != "absolute":
            raise ValueError('gap = "recorded" takes mode = "sessions"')


class Bailian(JsonLines):
    """The reader of Bailian traces."""

    Parameters = BailianParameters
    kind, needed = Line, "chat_id, parent_chat_id, timestamp, input_length, output_length, hash_ids"

    def check(self, number: int, line: Line, faults: Faults) -> None:
        check_blocks(number, line, BLOCK_TOKENS, faults)

    def columns(self, lines: list[tuple[int, Line]], faults: Faults) -> Columns:
        parents, num_lost = _parents(lines, faults)
        roots = _roots(lines, parents, faults)
        faults.raise_if_any()
        return self._columns(faults.path, [line for _, line in lines], parents, roots, num_lost)

    def _columns(self, path, lines: list[Line], parents: np.ndarray, roots: np.ndarray, num_lost: int) -> Columns:
        times = nearest(np.array([line.timestamp for line in lines]) * 1e9)
        prompt_tokens = np.array([line.input_length for line in lines], dtype=np.int64)
        chats, codes = np.unique(roots, return_inverse=True)
        notes = notes_on_order(path, times)
        waits = None
        if self.parameters.mode == "sessions":
            waits = self._waits(times, parents, codes)
            if num_lost:
                notes += (f"{path}: {num_lost} turns follow one that is not in the file; each begins a session.",)
        return Columns(
            arrival_ns=times - times.min(), prompt_tokens=prompt_tokens,
            output_tokens=np.array([line.output_length for line in lines], dtype=np.int64),
            labels={"session": (codes.astype(np.int64), [str(lines[row].chat_id) for row in chats])},
            prompts=block_prompts([line.hash_ids for line in lines], BLOCK_TOKENS, prompt_tokens),
            waits=waits, notes=notes, origin_ns=int(times.min()))

    def _waits(self, times: np.ndarray, parents: np.ndarray, codes: np.ndarray) -> Waits:
        targets = np.flatnonzero(parents >= 0)
        sources = parents[targets]
        is_recorded = self.parameters.gap == "recorded"
        delays = np.maximum(times[targets] - times[sources], 0) if is_recorded else np.zeros(len(targets), np.int64)
        starts = np.full(codes.max() + 1, MAX_TIME_NS)
        is_root = parents < 0
        starts[codes[is_root]] = times[is_root]
        not_before = None if is_recorded else np.maximum(times - starts[codes], 0)
        return Waits(codes.astype(np.int64), sources, targets, delays, np.zeros(len(targets), bool), not_before)


def _parents(lines: list[tuple[int, Line]], faults: Faults) -> tuple[np.ndarray, int]:
    """Return the row of each line's parent, -1: none, and the number of parents that the file lacks."""
    row_of = {}
    for row, (number, line) in enumerate(lines):
        if row_of.setdefault(line.chat_id, row) != row:
            faults.add(number, f"chat_id: expected one that is not that of line {lines[row_of[line.chat_id]][0]}, "
                       f"found {line.chat_id}")
    parents = np.array([row_of.get(line.parent_chat_id, -1) for _, line in lines], dtype=np.int64)
    return parents, sum(line.parent_chat_id != NO_PARENT and parents[row] < 0 for row, (_, line) in enumerate(lines))


def _roots(lines: list[tuple[int, Line]], parents: np.ndarray, faults: Faults) -> np.ndarray:
    """Return the row of the first turn of each line's chat; circular chats are faults."""
    roots = np.arange(len(parents))
    up = np.where(parents >= 0, parents, roots)
    for _ in range(len(parents).bit_length() + 1):      # each step doubles the number of turns that it goes back
        roots, up = up[roots], up[up]
    for row in np.flatnonzero(parents[roots] >= 0):
        number, line = lines[row]
        faults.add(number, f"parent_chat_id: turns follow each other in a circle, from chat {line.chat_id}")
    return roots
