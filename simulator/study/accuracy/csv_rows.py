"""Rows of a CSV file of runs: reading, missing columns, selection by values."""
import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from simulator.errors import did_you_mean

Row = dict[str, str]


def read_rows(path: Path, needed: Iterable[str]) -> tuple[list[Row], list[str]]:
    """Return the rows of a file, and a fault for each needed column that is missing."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    columns = set(rows[0]) if rows else set()
    return rows, [f"{path}:1: {name}: no such column{did_you_mean(name, columns)}" for name in needed
                  if name not in columns]


def selected(rows: list[Row], select: Mapping[str, str]) -> list[tuple[int, Row]]:
    """Return the rows with these values, each with its line, from 2.

    select : column -> its value.
    """
    return [(line, row) for line, row in enumerate(rows, 2)
            if all(row[column] == value for column, value in select.items())]
