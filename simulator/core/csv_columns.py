"""CSV files of measurements: columns of numbers, and selection of rows by column values."""
import csv
import io
import zlib
from collections.abc import Sequence
from math import isinf, nan
from pathlib import Path

import numpy as np

from simulator.core.unpacking import unpacked
from simulator.errors import InputErrors, nearest

MAX_LISTED = 20                 # faults of one column that are listed one by one
MAX_SHOWN = 8                   # values of a column that a message lists


class ProfileCsv:
    """Rows of one file without repetitions of an earlier row, or some of the rows.

    Parameters
    ----------
    path : str or Path
        The file, plain or .gz; its first line names the columns.
    keep_copies : bool
        Keep rows that repeat an earlier one.

    Raises
    ------
    InputErrors
        The file cannot be read, or a row has more or fewer cells than the first line.
    """

    def __init__(self, path: str | Path, keep_copies: bool = False):
        self.path = str(path)
        self.header, self._rows, self._lines = _read(self.path)
        if not keep_copies:
            first = {}
            for row, line in zip(self._rows, self._lines):
                first.setdefault(tuple(row), line)
            self._rows, self._lines = list(first), list(first.values())

    def __len__(self):
        return len(self._rows)

    def has(self, column: str) -> bool:
        """Return whether the file has a column of this name."""
        return column in self.header

    def numbers(self, column: str, may_be_empty: bool = False, may_be_negative: bool = False) -> np.ndarray:
        """Return a column, float64 (rows,): finite numbers >= 0.

        may_be_empty : cells that are empty or hold nan are no faults, but NaN. may_be_negative : nor are numbers < 0.

        Raises
        ------
        InputErrors
            No such column; or a cell that holds something else, with its line.
        """
        cells = self._cells(column)
        values = [_number(cell) for cell in cells]
        wrong = [i for i, value in enumerate(values) if value is None or (value != value and not may_be_empty)
                 or (value < 0 and not may_be_negative)]
        if wrong:
            expected = "a finite number" if may_be_negative else "a finite number >= 0"
            listed = [f'{self.path}:{self._lines[i]}: {column}: expected {expected}, found "{cells[i][:60]}"'
                      for i in wrong[:MAX_LISTED]]
            rest = len(wrong) - len(listed)
            raise InputErrors(listed + [f"{self.path}: {column}: {rest} more faults like these"] * (rest > 0))
        return np.array(values)

    def texts(self, column: str) -> list[str]:
        """Return a column as it is written."""
        return self._cells(column)

    def where(self, **values: float | bool | str) -> "ProfileCsv":
        """Return the rows with the given values in the given columns.

        Raises
        ------
        InputErrors
            No row has them: the first column that leaves none, and its values.
        """
        part = self
        for column, value in values.items():
            kept = part._holding(column, value)
            if not any(kept):
                found = list(dict.fromkeys(part._cells(column)))
                more = ", ..." if len(found) > MAX_SHOWN else ""
                so_far = ", ".join(f"{name} = {given}" for name, given in values.items() if name != column)
                raise InputErrors([f"{self.path}: {column}: no row holds {value}; found "
                                   f"{', '.join(found[:MAX_SHOWN])}{more} (wanted beside it: {so_far or 'nothing'})"])
            part = part.rows(kept)
        return part

    def rows(self, kept: Sequence[bool]) -> "ProfileCsv":
        """Return the rows for which `kept` is true; there may be none."""
        part = object.__new__(ProfileCsv)
        part.path, part.header = self.path, self.header
        part._rows = [row for row, is_kept in zip(self._rows, kept) if is_kept]
        part._lines = [line for line, is_kept in zip(self._lines, kept) if is_kept]
        return part

    def _holding(self, column: str, value: float | bool | str) -> Sequence[bool]:
        if isinstance(value, str | bool):
            return [cell == str(value) for cell in self._cells(column)]
        return self.numbers(column, may_be_empty=True) == value

    def _cells(self, column: str) -> list[str]:
        if column not in self.header:
            raise InputErrors([f"{self.path}:1: {column}: no such column{nearest(column, self.header)}"])
        index = self.header.index(column)
        return [row[index] for row in self._rows]


def file_bytes(path: str | Path) -> bytes:
    """Return the content of a file, unpacked if its name ends with .gz.

    Raises
    ------
    InputErrors
        It cannot be read or unpacked.
    """
    try:
        raw = Path(path).read_bytes()
        return unpacked(raw) if str(path).endswith(".gz") else raw
    except (OSError, EOFError, zlib.error) as error:
        raise InputErrors([f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"]) from error


def _read(path: str) -> tuple[list[str], list[list[str]], list[int]]:
    try:
        reader = csv.reader(io.StringIO(file_bytes(path).decode("utf-8-sig"), newline=""), strict=True)
        numbered = [(row, reader.line_num) for row in reader if row]
    except UnicodeDecodeError as error:
        raise InputErrors([f"{path}: is no text in UTF-8: byte {error.start}"]) from error
    except csv.Error as error:
        raise InputErrors([f"{path}:{reader.line_num}: is no CSV: {error}"]) from error
    if len(numbered) < 2:
        raise InputErrors([f"{path}: expected a line of column names and rows, found {len(numbered)} lines"])
    header = numbered.pop(0)[0]
    uneven = [f"{path}:{line}: expected {len(header)} cells, as the first line has, found {len(row)}"
              for row, line in numbered if len(row) != len(header)]
    twice = [f"{path}:1: {name}: two columns of this name" for name in dict.fromkeys(header) if header.count(name) > 1]
    if uneven or twice:
        raise InputErrors(twice + uneven[:MAX_LISTED])
    return header, [row for row, _ in numbered], [line for _, line in numbered]


def _number(cell: str) -> float | None:
    """Return the number in a cell, NaN for an empty one, None for anything else; infinities are none."""
    try:
        value = float(cell) if cell.strip() else nan
    except ValueError:
        return None
    return None if isinf(value) else value
