"""`bailian`: the traces of Qwen in Alibaba Cloud Bailian, JSON Lines with hashed blocks, one request a line.

Source: github.com/alibaba-edu/qwen-bailian-usagetraces-anon, README.md: chat_id, parent_chat_id (-1: none), timestamp
(s), input_length, output_length, type, turn, hash_ids (blocks of 16 tokens; an id identifies a block and all before
it). Each line has its whole prompt. The first request arrives at 0.
"""
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.columns import Columns, Prompts, Waits, nearest
from simulator.workload.formats.blocks import block_prompts, prompts_of_codes, ranks
from simulator.workload.formats.json_lines import JsonLines, check_blocks, has_all_blocks
from simulator.workload.formats.order import notes_on_order
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.json_scan import JsonScan

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


class Rows(NamedTuple):
    """The lines of a file; arrays have a value a line."""

    timestamps: np.ndarray          # float64, s
    prompt_tokens: np.ndarray       # int64, like the arrays below
    output_tokens: np.ndarray
    chats: Sequence                 # chat_id of each
    parents: np.ndarray             # row of the turn before; -1: none
    roots: np.ndarray               # row of the chat's first turn
    num_lost: int                   # turns that follow one that the file lacks


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
    scans, kind, needed = True, Line, "chat_id, parent_chat_id, timestamp, input_length, output_length, hash_ids"

    def check(self, number: int, line: Line, faults: Faults) -> None:
        check_blocks(number, line, BLOCK_TOKENS, faults)

    def columns(self, lines: list[tuple[int, Line]], faults: Faults) -> Columns:
        parents, num_lost = _parents(lines, faults)
        roots = _roots(lines, parents, faults)
        faults.raise_if_any()
        timestamps = np.array([line.timestamp for _, line in lines])
        prompt_tokens = np.array([line.input_length for _, line in lines], dtype=np.int64)
        output_tokens = np.array([line.output_length for _, line in lines], dtype=np.int64)
        prompts = block_prompts([line.hash_ids for _, line in lines], BLOCK_TOKENS, prompt_tokens)
        return self._columns(faults.path, Rows(timestamps, prompt_tokens, output_tokens, [
            line.chat_id for _, line in lines], parents, roots, num_lost), prompts)

    def scanned(self, path: str | Path, scan: JsonScan) -> Columns | None:
        timestamps, prompt_tokens, output_tokens, chats, parent_chats, counts = (scan.values[name] for name in (
            "timestamp", "input_length", "output_length", "chat_id", "parent_chat_id", "hash_ids"))
        if not has_all_blocks(counts, prompt_tokens, BLOCK_TOKENS):
            return None
        sorted_chats, rows = np.unique(chats, return_index=True)
        if len(rows) < len(chats):
            return None
        places = np.minimum(np.searchsorted(sorted_chats, parent_chats), len(rows) - 1)
        parents = np.where(sorted_chats[places] == parent_chats, rows[places], -1)
        roots = _all_roots(parents)
        if np.any(parents[roots] >= 0):
            return None
        num_lost = int(np.count_nonzero((parent_chats != NO_PARENT) & (parents < 0)))
        prompts = prompts_of_codes(counts, ranks(scan.items["hash_ids"]), BLOCK_TOKENS, prompt_tokens)
        return self._columns(path, Rows(timestamps, prompt_tokens, output_tokens, chats, parents, roots, num_lost),
                             prompts)

    def _columns(self, path: str | Path, of: Rows, prompts: Prompts | None) -> Columns:
        times = nearest(of.timestamps * 1e9)
        chats, codes = np.unique(of.roots, return_inverse=True)
        notes = notes_on_order(path, times)
        waits = None
        if self.parameters.mode == "sessions":
            waits = self._waits(times, of.parents, codes)
            if of.num_lost:
                notes += (f"{path}: {of.num_lost} turns follow one that is not in the file; each begins a session.",)
        return Columns(
            arrival_ns=times - times.min(), prompt_tokens=of.prompt_tokens, output_tokens=of.output_tokens,
            labels={"session": (codes.astype(np.int64), [str(of.chats[row]) for row in chats])}, prompts=prompts,
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
    roots = _all_roots(parents)
    for row in np.flatnonzero(parents[roots] >= 0):
        number, line = lines[row]
        faults.add(number, f"parent_chat_id: turns follow each other in a circle, from chat {line.chat_id}")
    return roots


def _all_roots(parents: np.ndarray) -> np.ndarray:
    """Return the row of the first turn of each line's chat.

    In a circular chat no turn is the first: the row has a parent then.
    """
    roots = np.arange(len(parents))
    up = np.where(parents >= 0, parents, roots)
    for _ in range(len(parents).bit_length() + 1):      # each step doubles the number of turns that it goes back
        if np.array_equal(up[up], up):
            return up
        roots, up = up[roots], up[up]
    return roots
