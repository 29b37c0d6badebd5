"""`timed_trace`: JSON Lines with hashed chunks, one request a line; the dataset of this name in `vllm bench serve`.

Source: vllm-project/vllm, vllm/benchmarks/datasets/datasets.py, commit 003cf029: timestamp, input_length,
output_length, hash_ids. Times count from the start. A chunk cut by the prompt's end has other tokens than the whole
chunk of its id.
"""
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain import records
from simulator.workload.columns import Columns, Prompts, nearest
from simulator.workload.formats.blocks import ranks
from simulator.workload.formats.json_lines import JsonLines, check_blocks, has_all_blocks
from simulator.workload.formats.order import notes_on_order
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.json_scan import JsonScan


class Line(msgspec.Struct):
    """One request."""

    timestamp: Annotated[float, Meta(ge=0, le=MAX_TIME_NS)]
    input_length: Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
    output_length: Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
    hash_ids: list[Annotated[int, Meta(ge=-2**63, le=2**63 - 1)]]


class TimedTraceParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values that the lines lack."""

    block_size: Annotated[int, Meta(ge=1, le=2**20, description="tokens behind one hash id")] = 16
    timestamp_unit_s: Annotated[float, Meta(gt=0, le=1e9, description=(
        "unit of a timestamp; sec_multiplier in the tool"))] = 1.0


class TimedTrace(JsonLines):
    """The reader of timed traces.

    Ids that do not cover the prompt are refused: the tool would silently send a shorter prompt.
    """

    Parameters = TimedTraceParameters
    scans, kind, needed = True, Line, "timestamp, input_length, output_length, hash_ids"

    def check(self, number: int, line: Line, faults: Faults) -> None:
        check_blocks(number, line, self.parameters.block_size, faults, "; is block_size right?")
        if line.timestamp * self.parameters.timestamp_unit_s * 1e9 > MAX_TIME_NS:
            faults.add(number, f"timestamp: expected at most {MAX_TIME_NS / 1e9:g} s, found {line.timestamp:g}")

    def columns(self, lines: list[tuple[int, Line]], faults: Faults) -> Columns:
        timestamps = np.array([line.timestamp for _, line in lines])
        prompt_tokens, output_tokens, counts = (
            np.array(column, dtype=np.int64) for column in zip(
                *((line.input_length, line.output_length, len(line.hash_ids)) for _, line in lines), strict=True))
        ids = np.array([each for _, line in lines for each in line.hash_ids], dtype=np.int64)
        return self._columns(faults.path, timestamps, prompt_tokens, output_tokens, self._prompts(
            counts, ids, prompt_tokens))

    def scanned(self, path: str | Path, scan: JsonScan) -> Columns | None:
        timestamps, prompt_tokens, output_tokens, counts = (
            scan.values[name] for name in ("timestamp", "input_length", "output_length", "hash_ids"))
        if not has_all_blocks(counts, prompt_tokens, self.parameters.block_size) or (
                timestamps.max() * self.parameters.timestamp_unit_s * 1e9 > MAX_TIME_NS):
            return None
        return self._columns(path, timestamps, prompt_tokens, output_tokens, self._prompts(
            counts, scan.items["hash_ids"], prompt_tokens))

    def _columns(self, path: str | Path, timestamps: np.ndarray, prompt_tokens: np.ndarray, output_tokens: np.ndarray,
                 prompts: Prompts) -> Columns:
        times = nearest(timestamps * (self.parameters.timestamp_unit_s * 1e9))
        return Columns(arrival_ns=times, prompt_tokens=prompt_tokens, output_tokens=output_tokens, prompts=prompts,
                       notes=notes_on_order(path, times))

    def _prompts(self, counts: np.ndarray, ids: np.ndarray, prompt_tokens: np.ndarray) -> Prompts:
        block_size = self.parameters.block_size
        num_tokens = np.full(counts.sum(), block_size)
        num_tokens[np.cumsum(counts) - 1] = prompt_tokens - (counts - 1) * block_size
        codes = ranks(ranks(ids) * (block_size + 1) + num_tokens)       # by id, then by tokens
        return Prompts(counts, records.named_stream(codes), num_tokens)
