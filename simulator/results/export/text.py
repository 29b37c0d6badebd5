"""Rows of CSV, a block at a time."""
import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

BLOCK_ROWS = 1 << 16            # formatted together, in some tens of megabytes


def blocks(num_rows: int) -> Iterable[slice]:
    """Yield slices that cover `num_rows` rows."""
    for first in range(0, num_rows, BLOCK_ROWS):
        yield slice(first, min(first + BLOCK_ROWS, num_rows))


def write_csv(path: Path, num_rows: int, columns_of: Callable[[slice], dict[str, np.ndarray]],
              show: Callable[[int], None]) -> None:
    """Write columns under their names; NaN is a blank.

    columns_of : given some of the rows, which may be none, returns their columns.
    show : called with the number of rows written since the last call.
    """
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns_of(slice(0, 0)))
        for part in blocks(num_rows):
            writer.writerows(zip(*(_texts(column) for column in columns_of(part).values()), strict=True))
            show(part.stop - part.start)


def _texts(column: np.ndarray) -> Sequence:
    """Return the texts of a column: numbers as Python writes them, the shortest text that reads back equal."""
    values = column.tolist()
    if column.dtype.kind == "f" and np.isnan(column).any():
        return ["" if value != value else value for value in values]
    return values
