"""Check for values in results.h5 that no run writes: the first one is reported, in place of a later error."""
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from simulator.domain import columns
from simulator.errors import InputErrors
from simulator.results.reader import Reader

ROWS = 1 << 16                      # processed together
LATEST_NS = 1 << 62                 # of an instant
SIGNED = {"request_id", "priority"}         # a user's own numbers


@contextmanager
def refusing_wild_values(path: Path) -> Iterator[None]:
    """Raise InputErrors in place of an error that the values of a file lead to.

    path : results.h5.
    """
    try:
        yield
    except InputErrors:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, MemoryError) as error:
        if not path.is_file():
            raise
        fault = first_wild(path) or (
            f"its values cannot be worked with ({type(error).__name__}: {' '.join(str(error).split())}); if a run of "
            "this version wrote them, report it as CONTRIBUTING.md says")
        raise InputErrors([f"{path}: {fault}"]) from error


def first_wild(path: Path) -> str | None:
    """Return the place of the first value that no run writes; None: there is none."""
    reader = Reader(path)
    names = reader.names()
    num_replicas = len(reader.table("replicas")) if "replicas" in names else None
    labels = {column: len(known) for column, known in reader.labels().items()}
    for name in names:
        if name not in columns.TABLES:
            continue
        first = 0
        for rows in reader.blocks(name, ROWS):
            for column in rows.dtype.names:
                for row, value in _wild(name, column, rows[column], num_replicas, labels):
                    return f"/{name}, row {first + row}: {column}: no run writes {value}"
            first += len(rows)
    return None


def _wild(table: str, column: str, values: np.ndarray, num_replicas: int | None, labels: dict[str, int]) -> list:
    """Return (row, value) of the first wild value of a column, or nothing."""
    if values.ndim != 1 or values.dtype.kind not in "iuf" or column in SIGNED:
        return []
    codes = columns.CODES.get(table, {}).get(column)
    if values.dtype.kind == "f":
        is_wild = np.isinf(values)
    elif codes is not None:
        is_wild = (values < -1) | (values >= len(codes))
    elif column in labels:
        is_wild = (values < -1) | (values >= labels[column])
    elif column.endswith("replica") and num_replicas is not None:
        is_wild = (values < -1) | (values >= num_replicas)
    else:
        is_wild = (values < -1) | (values.astype(np.float64) > LATEST_NS)
    rows = np.flatnonzero(is_wild)
    return [(int(rows[0]), values[rows[0]].item())] if len(rows) else []
