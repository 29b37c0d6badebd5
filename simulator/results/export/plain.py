"""Each table of results.h5 as a file of its own: CSV, or Parquet with the extra `parquet`.

Columns and units are those of results.h5 (`describe results table requests`); codes are written as labels, a missing
label as a blank. Tables are read and written a block at a time.
"""
import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from simulator.domain import columns
from simulator.errors import MissingExtra
from simulator.results.export.source import Source
from simulator.results.export.text import BLOCK_ROWS

Show = Callable[[int], None]
Block = dict[str, np.ndarray]


def write_csv_tables(source: Source, folder: Path, show: Show) -> list[str]:
    """Write NAME.csv for each table; return nothing, since nothing is left out."""
    for name in source.table_names():
        with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            for number, block in enumerate(_blocks(source, name)):
                if number == 0:
                    writer.writerow(block)
                writer.writerows(zip(*(values.tolist() for values in block.values()), strict=True))
                show(_length(block))
    return []


def write_parquet_tables(source: Source, folder: Path, show: Show) -> list[str]:
    """Write NAME.parquet for each table; return nothing, since nothing is left out.

    Raises
    ------
    MissingExtra
        pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra(["--as parquet needs pyarrow: install it with pip install 'simulator[parquet]'"]) from None
    for name in source.table_names():
        writer = None
        try:
            for block in _blocks(source, name):
                table = pa.table({column: pa.array(values.tolist() if values.dtype.kind in "OU" else values)
                                  for column, values in block.items()})
                writer = writer or parquet.ParquetWriter(folder / f"{name}.parquet", table.schema)
                writer.write_table(table)
                show(_length(block))
        finally:
            if writer is not None:
                writer.close()
    return []


def _blocks(source: Source, name: str) -> Iterator[Block]:
    """Yield a table in blocks of columns, at least one, which may be empty."""
    for rows in source.blocks(name, BLOCK_ROWS):
        yield {column: _shown(source, name, column, rows[column]) for column in rows.dtype.names}


def _shown(source: Source, table: str, column: str, values: np.ndarray) -> np.ndarray:
    """Return values with codes replaced by labels."""
    if column in columns.CODES.get(table, {}):
        return np.array(columns.CODES[table][column], object)[values]
    if table == "requests" and column in source.labels:
        return np.array([*source.labels[column], ""], object)[values]     # -1, no label, is the last
    return values


def _length(block: Block) -> int:
    return len(next(iter(block.values())))
