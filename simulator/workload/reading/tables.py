"""Tables in CSV files, by the names in their first line: whole, or in pieces for files larger than memory."""
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from simulator.errors import did_you_mean
from simulator.workload.reading.csv_scan import Column, Kind, Scan, Scanner
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.files import check_text


def scan_columns(path: str | Path, data: bytes, known: dict[str, Column], required: tuple[str, ...], faults: Faults,
                 strict: bool = False, first_row: int = 2) -> Scan:
    """Scan a CSV file that holds `data`, see `scan_pieces`."""
    return scan_pieces(path, (data,), known, required, faults, strict, first_row)


def scan_pieces(path: str | Path, pieces: Iterable[bytes], known: dict[str, Column], required: tuple[str, ...],
                faults: Faults, strict: bool = False, first_row: int = 2) -> Scan:
    """Scan a CSV file; parameters as of `scans_of`."""
    scans = list(scans_of(path, pieces, known, required, faults, strict, first_row))
    return scans[0] if len(scans) == 1 else _joined(scans)


def scans_of(path: str | Path, pieces: Iterable[bytes], known: dict[str, Column], required: tuple[str, ...],
             faults: Faults, strict: bool = False, first_row: int = 2) -> Iterator[Scan]:
    """Yield the scan of each piece of a CSV file; the last one has the texts of all.

    Parameters
    ----------
    pieces : the file in pieces of whole rows, from `files.read_pieces`; only one piece is held at a time.
    known : the columns that are read; others are ignored, or with `strict` a fault.
    required : names of required columns.
    first_row : the line on which the rows begin.

    Raises InputErrors for a first line that does not fit and for a file without rows; collects faults of rows.
    """
    pieces = iter(pieces)
    first = next(pieces, b"")
    check_text(path, first)
    scanner = Scanner(first, faults)
    names = scanner.header()
    if first_row != 2:
        scanner.count_from(first_row)
    _check_names(names, known, required, faults, strict)
    columns = [known.get(name, Column(Kind.IGNORE)) for name in names]
    scan = scanner.rows(columns)
    num_rows = len(scan.lines)
    yield scan
    for piece in pieces:
        if scan.ids_are_text:
            break
        check_text(path, piece, scanner.lines_before)
        scanner.feed(piece)
        scan = scanner.rows(columns)
        num_rows += len(scan.lines)
        yield scan
    if not num_rows:
        faults.add(0, "there are no rows below the first line")


def read_integer_column(path: str | Path, data: bytes, column: str) -> np.ndarray:
    """Return one column of a CSV file, int64: integers from 0 to 2**31 - 1."""
    return read_column(path, data, column, Column(Kind.INTEGER, required=True))


def read_column(path: str | Path, data: bytes, column: str, holds: Column) -> np.ndarray:
    """Return one column of a CSV file, int64."""
    faults = Faults(path)
    scan = scan_columns(path, data, {column: holds}, (column,), faults)
    faults.raise_if_any()
    return scan.values[column]


def _check_names(names: list[str], known: dict[str, Column], required: tuple[str, ...], faults: Faults,
                 strict: bool) -> None:
    for name in dict.fromkeys(names):
        if strict and name not in known:
            faults.add(1, f"unknown column {quoted(name)}{did_you_mean(name, known)}")
        if name in known and names.count(name) > 1:
            faults.add(1, f'column "{name}" stands there {names.count(name)} times')
    for name in required:
        if name not in names:
            faults.add(1, f'column "{name}" is missing; found {quoted(", ".join(names))}')
    faults.raise_if_any()


def _joined(scans: list[Scan]) -> Scan:
    """Return the rows of all pieces; texts have the codes of the last piece, which has all codes."""
    last = scans[-1]
    return Scan(
        values={name: np.concatenate([scan.values[name] for scan in scans]) for name in last.values},
        texts=last.texts,
        segments=tuple(np.concatenate([scan.segments[i] for scan in scans]) for i in range(2)),
        lines=np.concatenate([scan.lines for scan in scans]),
        ids_are_text=last.ids_are_text)
