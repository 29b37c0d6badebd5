"""Tables of a run in memory, for a caller that wants no files."""
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace

import numpy as np
from msgspec.structs import replace

from simulator.domain.run import Run
from simulator.results import tables
from simulator.results.blocks import BLOCK_ROWS, Columns
from simulator.results.growing_table import GrowingTable
from simulator.results.journeys import journeys_of
from simulator.results.token_times import TokenTimes, most_tokens
from simulator.results.traits import first_answers, has_reasoning, traits_of
from simulator.workload.base import Workload


class MemoryRecorder:
    """Receives the engine's calls during a run; like `files.FileRecorder`.

    Parameters
    ----------
    output : the Struct of [output], or an object with the same fields.
    workload : of the run.
    listeners : further receivers of iterations.
    streams : further tables that grow row by row: name -> type of a row.
    """

    def __init__(self, output, workload: Workload, listeners: tuple = (),
                 streams: Mapping[str, np.dtype] | None = None):
        self.wants_iterations = output.iterations or bool(listeners)
        self._listeners = listeners
        self._keeps_tokens = output.token_times
        self.wants_tokens = output.token_times or has_reasoning(workload)
        self.pending = []
        self.streams = {name: GrowingTable(dtype) for name, dtype in (streams or {}).items()}
        self._iterations = GrowingTable(tables.ITERATION) if output.iterations else None
        self._tokens = TokenTimes(most_tokens(workload)) if self.wants_tokens else None

    def iterations(self, rows: np.ndarray) -> None:
        """Take rows of `records.ITERATION`."""
        for listener in self._listeners:
            listener.append(rows)
        if self._iterations is not None:
            self._iterations.append(rows)

    def tokens(self, rows: np.ndarray) -> None:
        """Take rows of `records.TOKEN`."""
        self._tokens.append(rows)

    def append(self, name: str, rows: np.ndarray) -> None:
        """Take rows of one of the streams."""
        self.streams[name].append(rows)

    def finish(self, run: Run) -> "MemoryTables":
        """Return the tables of the finished run."""
        for hand_on in self.pending:
            hand_on()
        iterations = token_times = None
        if self._iterations is not None:
            iterations = self._iterations.rows()
        if has_reasoning(run.workload):
            run.first_answer_ns = first_answers(run.workload, self._tokens)
        if self._keeps_tokens:
            token_times = self._tokens.offsets(), joined(list(self._tokens.slices()))
        if self.wants_tokens:
            self._tokens.close()
        streams = {name: table.rows() for name, table in self.streams.items()}
        return MemoryTables(run, iterations, token_times, streams)


class MemoryTables:
    """The tables of a run that was not written; the counterpart of `reader.Reader`."""

    def __init__(self, run: Run, iterations: np.ndarray | None, token_times: tuple | None, streams: dict):
        self._run = run
        self._iterations = iterations
        self._token_times = token_times
        self._streams = streams

    def table(self, name: str) -> np.ndarray:
        """Return a table by its name in results.h5."""
        if name == "requests":
            self._check_rows()
            return tables.with_text_ids(next(self._request_blocks(len(self._run.workload))))
        known = {"iterations": self._iterations, "replicas": tables.replica_rows(self._run.replicas),
                 "token_times": self._token_times}
        return _asked_for((known | self._streams | tables.further(self._run)).get(name), name)

    def request(self, row: int) -> np.ndarray:
        """Return one row of the request table."""
        self._check_rows()
        return tables.with_text_ids(next(self._request_blocks(1, row)))[0]

    def __getstate__(self):
        """Leave out of a pickle the parts that tables do not need and that cannot be pickled."""
        return self.__dict__ | {"_run": replace(self._run, itl_ns=None, parts=())}

    def columns(self, name: str, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Return columns of a table by name; missing columns are left out."""
        rows = self.table(name)
        return {each: rows[each] for each in names if each in rows.dtype.names}

    def column_blocks(self, name: str, names: Iterable[str]) -> Iterator[Columns]:
        """Yield columns in blocks; for a table without rows, no block."""
        if name == "requests":      # made on use: a block at a time takes less memory
            self._check_rows()
            pieces = self._request_blocks(BLOCK_ROWS)
        else:
            table = self.table(name)
            pieces = (table[first:first + BLOCK_ROWS] for first in range(0, len(table), BLOCK_ROWS))
        for rows in pieces:
            yield {each: rows[each] for each in names if each in rows.dtype.names}

    def _check_rows(self) -> None:
        if self._run.workload.chunks is not None:
            _asked_for(None, "requests")

    def _request_blocks(self, num_rows: int, first: int = 0) -> Iterator[np.ndarray]:
        """Yield the request table from a row on, as HDF5 has it; at least one block."""
        workload, journeys, traits = self._run.workload, journeys_of(self._run), traits_of(self._run)
        dtype = tables.request_dtype(workload, journeys, traits)
        for begin in range(first, max(len(workload), 1), max(num_rows, 1)):
            yield tables.request_rows(workload, dtype, journeys, slice(begin, begin + num_rows), traits)

    def num_rows(self, name: str) -> int | None:
        """Return how many rows a table has; None: it was not kept."""
        if name == "requests" and self._run.workload.chunks is None:
            return len(self._run.workload)
        try:
            return len(self.table(name))
        except LookupError:
            return None

    def token_offsets(self) -> np.ndarray:
        """Return offsets of token times."""
        return self.token_times()[0]

    def token_time_blocks(self) -> Iterator[np.ndarray]:
        """Yield token times in ns, in blocks."""
        times_ns = self.token_times()[1]
        for first in range(0, len(times_ns), BLOCK_ROWS):
            yield times_ns[first:first + BLOCK_ROWS]

    def token_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets and times in ns."""
        return _asked_for(self._token_times, "token_times")

    def labels(self) -> dict[str, list[str]]:
        """Return the names behind the codes of the request table, by column."""
        return {column: list(names) for column, names in self._run.workload.labels.items() if len(names)}


def joined(slices: list[np.ndarray]) -> np.ndarray:
    """Return one array of times; a single slice, the usual case, is not copied."""
    return slices[0] if len(slices) == 1 else np.concatenate([np.empty(0, np.int64), *slices])


def _asked_for(table, key: str):
    if table is None:
        raise LookupError(f"there is no such table: {tables.why_absent(key)}")
    return table


# For a cluster that is built and not run.
NO_SINK = SimpleNamespace(wants_iterations=False, wants_tokens=False, streams=())
