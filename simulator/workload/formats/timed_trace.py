"""`timed_trace`: JSON Lines with hashed chunks, one request a line; the dataset of this name in `vllm bench serve`.

Source: vllm-project/vllm, vllm/benchmarks/datasets/datasets.py, commit 003cf029: timestamp, input_length,
output_length, hash_ids. Times count from the start. A chunk cut by the prompt's end has other tokens than the whole
chunk of its id.
"""
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain import records
from simulator.workload.columns import Columns, Prompts, nearest
from simulator.workload.formats.json_lines import JsonLines, check_blocks
from simulator.workload.formats.order import notes_on_order
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.reading.faults import Faults


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
    kind, needed = Line, "timestamp, input_length, output_length, hash_ids"

    def check(self, number: int, line: Line, faults: Faults) -> None:
        check_blocks(number, line, self.parameters.block_size, faults, "; is block_size right?")
        if line.timestamp * self.parameters.timestamp_unit_s * 1e9 > MAX_TIME_NS:
            faults.add(number, f"timestamp: expected at most {MAX_TIME_NS / 1e9:g} s, found {line.timestamp:g}")

    def columns(self, lines: list[tuple[int, Line]], faults: Faults) -> Columns:
        times = nearest(np.array([line.timestamp for _, line in lines]) * (self.parameters.timestamp_unit_s * 1e9))
        prompt_tokens = np.array([line.input_length for _, line in lines], dtype=np.int64)
        return Columns(
            arrival_ns=times, prompt_tokens=prompt_tokens,
            output_tokens=np.array([line.output_length for _, line in lines], dtype=np.int64),
            prompts=self._prompts([line.hash_ids for _, line in lines], prompt_tokens),
            notes=notes_on_order(faults.path, times))

    def _prompts(self, ids: list[list[int]], prompt_tokens: np.ndarray) -> Prompts:
        counts = np.array([len(each) for each in ids], dtype=np.int64)
        block_size = self.parameters.block_size
        num_tokens = np.full(counts.sum(), block_size)
        num_tokens[np.cumsum(counts) - 1] = prompt_tokens - (counts - 1) * block_size
        chunks = np.column_stack([np.array([each for of_one in ids for each in of_one], dtype=np.int64), num_tokens])
        _, codes = np.unique(chunks, axis=0, return_inverse=True)
        return Prompts(counts, records.named_stream(codes.ravel()), num_tokens)
