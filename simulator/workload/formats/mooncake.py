"""`mooncake`: JSON Lines with hashed prompt blocks, one request a line.

Source: github.com/kvcache-ai/Mooncake, FAST25-release/traces: timestamp (ms), input_length, output_length, hash_ids.
A hash id stands for a block of tokens and all before it; the last block may be partial. Other keys are not looked at.
"""
import re
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from simulator.domain import records
from simulator.errors import InputErrors
from simulator.workload.columns import Columns, Prompts, nearest
from simulator.workload.limits import MAX_TIME_NS, MAX_TOKENS
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import check_text

PLAIN_WORDS = {"Expected": "expected", "`int`": "an integer", "`float`": "a number", "`array | null`": "a list"}


class Line(msgspec.Struct):
    """One request."""

    timestamp: Annotated[float, Meta(ge=0, le=MAX_TIME_NS / 1e6)]
    input_length: Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
    output_length: Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
    hash_ids: list[Annotated[int, Meta(ge=-2**63, le=2**63 - 1)]] | None = None


class MooncakeParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the lines leave unsaid."""

    block_size: Annotated[int, Meta(ge=1, le=2**20, description=(
        "tokens behind one hash id; Mooncake's traces have 512, traces of agents often 16"))] = 512


class Mooncake:
    """The reader of Mooncake traces; without hash_ids a prompt is its own."""

    Parameters = MooncakeParameters

    def __init__(self, parameters: MooncakeParameters):
        self.block_size = parameters.block_size

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, in file order.

        Raises
        ------
        InputErrors
            Everything that is wrong with the file, by line.
        """
        check_text(path, data)
        faults = Faults(path)
        lines = self._lines(data, faults)
        faults.raise_if_any()
        if not lines:
            raise InputErrors([f"{path}: there are no requests in it"])
        prompt_tokens = np.array([line.input_length for line in lines], dtype=np.int64)
        return Columns(
            arrival_ns=nearest(np.array([line.timestamp for line in lines]) * 1e6),
            prompt_tokens=prompt_tokens,
            output_tokens=np.array([line.output_length for line in lines], dtype=np.int64),
            prompts=self._prompts(lines, prompt_tokens))

    def _lines(self, data: bytes, faults: Faults) -> list[Line]:
        decoder = msgspec.json.Decoder(Line)
        lines = []
        for number, text in enumerate(data.removeprefix(b"\xef\xbb\xbf").rstrip().split(b"\n"), start=1):
            if not text.strip():
                continue            # a blank line
            try:
                line = decoder.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                _refuse(number, text, error, faults)
                continue
            blocks = -(-line.input_length // self.block_size)
            if line.hash_ids is not None and len(line.hash_ids) != blocks:
                faults.add(number, (
                    f"hash_ids: expected {blocks} ids, blocks of {self.block_size} tokens for input_length "
                    f"{line.input_length}, found {len(line.hash_ids)}; is block_size right?"))
            lines.append(line)
        return lines

    def _prompts(self, lines: list[Line], prompt_tokens: np.ndarray) -> Prompts | None:
        counts = np.array([len(line.hash_ids or ()) for line in lines], dtype=np.int64)
        if not counts.any():
            return None
        hash_ids = np.fromiter((each for line in lines for each in line.hash_ids or ()), np.int64, counts.sum())
        _, codes = np.unique(hash_ids, return_inverse=True)
        num_tokens = np.full(len(hash_ids), self.block_size, dtype=np.int64)
        has_blocks = counts > 0
        last = np.cumsum(counts)[has_blocks] - 1
        num_tokens[last] = (prompt_tokens - (counts - 1) * self.block_size)[has_blocks]
        return Prompts(counts, records.named_stream(codes), num_tokens)


def _refuse(number: int, text: bytes, error: Exception, faults: Faults) -> None:
    """Say what is wrong with a line, by its key and what that holds where the decoder names one."""
    explanation, _, key = re.fullmatch(r"(?s)(.*?)( - at `\$\.?(.*?)`)?", str(error)).groups()
    if not key:
        faults.add(number, f"expected a JSON object with timestamp, input_length, output_length: {explanation}")
        return
    try:
        found = bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw])[key.partition("[")[0]]).decode()
    except (msgspec.DecodeError, RecursionError):       # the line is broken further on
        found = text.decode()
    expected = re.sub(r", got .*", "", explanation)
    for word, plain in PLAIN_WORDS.items():
        expected = expected.replace(word, plain)
    faults.add(number, f"{key}: {expected}, found {found[:60]}")
