"""The frame of readers of JSON Lines: a file is read, each line is checked, then all lines become columns."""
from pathlib import Path

import numpy as np

from simulator.errors import InputErrors, number_of
from simulator.workload.columns import Columns
from simulator.workload.limits import MISSING
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import check_text
from simulator.workload.reading.json_lines import decoded_lines, keys_of
from simulator.workload.reading.json_scan import JsonScan, scan_lines


class JsonLines:
    """The frame of a reader: a format defines a line, and the conversion of all lines.

    kind : a msgspec.Struct, the content of a line.
    needed : required keys of a line, for the message if all are missing.
    things : noun for the content of a file, for the message if it is empty.
    scans : whether `scanned` makes columns of lines without one object each.
    """

    kind = None
    needed = ""
    things = "requests"
    scans = False

    def __init__(self, parameters=None):
        self.parameters = parameters

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`.

        Raises
        ------
        InputErrors
            All faults of single lines, or else all faults of the lines together, by line.
        """
        check_text(path, data)
        scan = scan_lines(data, keys_of(self.kind)) if self.scans else None
        if scan is not None and len(scan.lines) and (columns := self.scanned(path, scan)) is not None:
            return columns
        faults = Faults(path)
        lines = self.lines(data, faults)
        for number, line in lines:
            self.check(number, line, faults)
        faults.raise_if_any()
        if not lines:
            raise InputErrors([f"{path}: there are no {self.things} in it"])
        columns = self.columns(lines, faults)
        faults.raise_if_any()
        return columns

    def scanned(self, path: str | Path, scan: JsonScan) -> Columns | None:
        """Return the requests of all lines.

        None: they have to be decoded one by one, by `lines`, `check` and `columns`, for a message or an unusual form.
        """

    def lines(self, data: bytes, faults: Faults) -> list[tuple[int, object]]:
        """Return the number and content of each line."""
        return decoded_lines(data, self.kind, self.needed, faults)

    def check(self, number: int, line, faults: Faults) -> None:
        """Add the faults of a line."""

    def columns(self, lines: list[tuple[int, object]], faults: Faults) -> Columns:
        """Return the requests of all lines, or add faults of the lines together."""
        raise NotImplementedError


def has_all_blocks(counts: np.ndarray, prompt_tokens: np.ndarray, block_size: int) -> bool:
    """Return whether each line has one of `hash_ids` for each prompt block.

    counts : int64 (n,), ids of each line; MISSING: it has no `hash_ids`.
    """
    return bool(np.all((counts == MISSING) | (counts == -(-prompt_tokens // block_size))))


def check_blocks(number: int, line, block_size: int, faults: Faults, advice: str = "") -> None:
    """Add a fault if a line has not one of `hash_ids` for each prompt block."""
    blocks = -(-line.input_length // block_size)
    if len(line.hash_ids) != blocks:
        faults.add(number, f"hash_ids: expected {number_of(blocks, 'id')}, blocks of {block_size} tokens for "
                           f"input_length {line.input_length}, found {len(line.hash_ids)}{advice}")
