"""Read results.h5, and report the faults of a file that cannot be read."""
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import tomli

from simulator import registry
from simulator.domain import columns
from simulator.errors import InputErrors
from simulator.results import tables, traits
from simulator.results.blocks import BLOCK_ROWS, Columns
from simulator.results.own_data import check_own
from simulator.results.unpacked_columns import ALL, column_blocks

ALWAYS = ("replicas", "labels")
# Columns that exist under conditions of their own.
OPTIONAL = {"requests": frozenset((*tables.JOURNEY_FIELDS, *tables.SCRIPT_FIELDS, tables.MEASURED, *traits.COLUMNS))}


class Reader:
    """Read the tables of results.h5, each on first use.

    Every method raises InputErrors where the file cannot be read, and methods for tables raise LookupError where the
    run did not write them.

    Parameters
    ----------
    path : the file.
    """

    def __init__(self, path: Path):
        self._path = path

    def check(self, schema: int) -> None:
        """Raise InputErrors unless the file has the tables and columns of this schema."""
        with self._open() as file:
            check_schema(self._path, file.attrs.get("schema"), schema)
            for name in (*ALWAYS, *_asked(file.attrs.get("resolved_toml", ""))):
                if name not in file:
                    raise self._fault(f"there is no /{name}, which every such run writes")
            for name, described in columns.TABLES.items():
                if name in file:
                    self._check_columns(file[name], name, described.keys() - OPTIONAL.get(name, frozenset()))

    def _check_columns(self, table, name: str, needed: set[str]) -> None:
        names = table.dtype.names if isinstance(table, h5py.Dataset) else None
        if names is None:
            raise self._fault(f"/{name} is no table of named columns")
        if missing := [column for column in columns.TABLES[name] if column in needed and column not in names]:
            raise self._fault(f"/{name} has no column {missing[0]}")

    def attributes(self) -> dict:
        """Return the attributes of the root."""
        with self._open() as file:
            return dict(file.attrs)

    def table(self, name: str) -> np.ndarray:
        """Return a table; ids of /requests that are text are returned as text."""
        rows = self._table(name)
        return tables.with_text_ids(rows) if name == "requests" else rows

    def request(self, row: int) -> np.ndarray:
        """Return one row of /requests."""
        with self._dataset("requests") as table:
            return tables.with_text_ids(table[row:row + 1])[0]

    def columns(self, name: str, names: Iterable[str]) -> Columns:
        """Return columns of a table by name; missing columns are left out."""
        with self._table_of_columns(name) as table:
            dtypes = {each: table.dtype[each] for each in names if each in table.dtype.names}
            found = {each: np.empty(len(table), dtype) for each, dtype in dtypes.items()}
            first = 0
            for block in column_blocks(table, dtypes):
                for each, values in block.items():
                    found[each][first:first + len(values)] = values
                first += len(next(iter(block.values())))
        return found

    def column_blocks(self, name: str, names: Iterable[str], num_rows: int = BLOCK_ROWS) -> Iterator[Columns]:
        """Yield columns in blocks of about `num_rows` rows; without rows, no block."""
        with self._table_of_columns(name) as table:
            yield from column_blocks(table, [each for each in names if each in table.dtype.names], num_rows)

    def num_rows(self, name: str) -> int | None:
        """Return how many rows a table has; None: it was not written."""
        with self._open() as file:
            return len(file[name]) if name in file else None

    @contextmanager
    def _table_of_columns(self, name: str) -> Iterator[h5py.Dataset]:
        with self._dataset(name) as table:
            if not isinstance(table, h5py.Dataset) or table.dtype.names is None:
                raise self._fault(f"/{name} is no table of named columns")
            yield table

    def token_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets and times_ns of /token_times."""
        return self.token_offsets(), self._table("token_times/times_ns")

    def token_offsets(self) -> np.ndarray:
        """Return offsets of /token_times."""
        return self._table("token_times/offsets")

    def token_time_blocks(self) -> Iterator[np.ndarray]:
        """Yield times_ns of /token_times in blocks."""
        with self._dataset("token_times/times_ns") as times_ns:
            for block in column_blocks(times_ns, (ALL,)):
                yield block[ALL]

    def labels(self) -> dict[str, list[str]]:
        """Return the names behind the codes of /requests, by column."""
        with self._open() as file:
            return {column: names.asstr()[:].tolist() for column, names in file["labels"].items()}

    def names(self) -> list[str]:
        """Return the names of the tables in the file, as in `columns.TABLES`."""
        with self._open() as file:
            return [name for name in (*columns.TABLES, "token_times") if name in file]

    def blocks(self, name: str, num_rows: int) -> Iterator[np.ndarray]:
        """Yield a table in blocks of `num_rows` rows, at least one block."""
        first, last = 0, None
        while last is None or first < last:
            with self._open() as file:
                last = len(file[name])
                rows = file[name][first:first + num_rows]
            yield tables.with_text_ids(rows) if name == "requests" else rows
            first += num_rows

    def _table(self, name: str) -> np.ndarray:
        with self._dataset(name) as dataset:
            return dataset[:]

    @contextmanager
    def _dataset(self, name: str) -> Iterator[h5py.Dataset]:
        with self._open() as file:
            if name not in file:
                raise LookupError(f"{self._path}: there is no /{name}; {tables.why_absent(name.partition('/')[0])}")
            try:
                yield file[name]
            except (OSError, RuntimeError, AttributeError, TypeError, ValueError) as error:
                raise self._fault(f"/{name} cannot be read, the file is damaged: {_words(error)}") from error

    @contextmanager
    def _open(self) -> Iterator[h5py.File]:
        if not self._path.is_file():        # reading a pipe would block
            raise self._fault("no such file" if not self._path.exists() else "is no file")
        try:
            file = h5py.File(self._path)
        except OSError as error:
            reason = error.strerror or _words(error)
            raise self._fault(f"cannot be read as HDF5: {reason}") from error
        with file:
            try:
                check_own(self._path, file)
                yield file
            except (OSError, RuntimeError, KeyError, AttributeError, TypeError) as error:
                raise self._fault(f"cannot be read: {_words(error)}") from error

    def _fault(self, text: str) -> InputErrors:
        return InputErrors([f"{self._path}: {text}"])


def check_schema(path: Path, found, known: int) -> None:
    """Raise InputErrors unless `found` is the schema that this version reads."""
    if isinstance(found, np.integer):
        found = int(found)
    if found is None:
        raise InputErrors([f"{path}: says no schema; it is not from a run of this simulator"])
    if isinstance(found, bool) or found != known:
        raise InputErrors([f"{path}: schema: expected {known}, which this version reads, found {found!r}"])


def _asked(resolved_toml: str) -> list[str]:
    """Return the tables that [output] of the experiment asks for."""
    try:
        output = tomli.loads(resolved_toml).get("output", {})
    except (tomli.TOMLDecodeError, TypeError):
        return []
    asked = [table for table in ("requests", "iterations", "token_times") if output.get(table)]
    return asked + [table for key in registry.PARTS if key.startswith("output.") and output.get(key.partition(".")[2])
                    for table in registry.part(key).tables]


def _words(error: Exception) -> str:
    return " ".join(str(error).split())
