"""What readers of JSON Lines share: a file is read, each line is checked, then all lines become columns."""
from pathlib import Path

from simulator.errors import InputErrors, number_of
from simulator.workload.columns import Columns
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import check_text
from simulator.workload.reading.json_lines import decoded_lines


class JsonLines:
    """The frame of a reader: a format says what a line is, and what becomes of all.

    kind : a msgspec.Struct, what a line holds.
    needed : keys of a line, for the message that none of them is there.
    things : what an empty file lacks.
    """

    kind = None
    needed = ""
    things = "requests"

    def __init__(self, parameters=None):
        self.parameters = parameters

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`.

        Raises
        ------
        InputErrors
            Everything that is wrong with single lines, or else with all of them together, by line.
        """
        check_text(path, data)
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

    def lines(self, data: bytes, faults: Faults) -> list[tuple[int, object]]:
        """Return the number and content of each line."""
        return decoded_lines(data, self.kind, self.needed, faults)

    def check(self, number: int, line, faults: Faults) -> None:
        """Say what is wrong with a line."""

    def columns(self, lines: list[tuple[int, object]], faults: Faults) -> Columns:
        """Return the requests of all lines, or say what is wrong with them together."""
        raise NotImplementedError


def check_blocks(number: int, line, block_size: int, faults: Faults, advice: str = "") -> None:
    """Say that a line has another number of `hash_ids` than its prompt has blocks."""
    blocks = -(-line.input_length // block_size)
    if len(line.hash_ids) != blocks:
        faults.add(number, f"hash_ids: expected {number_of(blocks, 'id')}, blocks of {block_size} tokens for "
                           f"input_length {line.input_length}, found {len(line.hash_ids)}{advice}")
