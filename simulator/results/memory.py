"""Keep the tables of a run in memory, for a caller who wants nothing written."""
import numpy as np

from simulator.domain.run import Run
from simulator.results import tables
from simulator.results.token_times import TokenTimes


class MemoryRecorder:
    """What the engine calls while it runs; the counterpart of `files.FileRecorder`.

    Parameters
    ----------
    output : object with booleans `iterations` and `token_times`; the Struct of [output] is one.
    num_requests : rows of the request table.
    """

    def __init__(self, output, num_requests: int):
        self.wants_iterations = output.iterations
        self.wants_tokens = output.token_times
        self._blocks = []
        self._tokens = TokenTimes(num_requests) if output.token_times else None

    def iterations(self, rows: np.ndarray) -> None:
        """Take rows of `records.ITERATION`."""
        self._blocks.append(tables.iteration_rows(rows))

    def tokens(self, rows: np.ndarray) -> None:
        """Take rows of `records.TOKEN`."""
        self._tokens.append(rows)

    def finish(self, run: Run) -> "MemoryTables":
        """Return the tables of the finished run."""
        iterations = token_times = None
        if self.wants_iterations:
            iterations = np.concatenate([np.empty(0, tables.ITERATION), *self._blocks])
        if self.wants_tokens:
            token_times = self._tokens.offsets(), np.concatenate([np.empty(0, np.int64), *self._tokens.slices()])
            self._tokens.close()
        return MemoryTables(run, iterations, token_times)


class MemoryTables:
    """The tables of a run that was not written; the counterpart of `hdf5.Reader`."""

    def __init__(self, run: Run, iterations: np.ndarray | None, token_times: tuple | None):
        self._run = run
        self._iterations = iterations
        self._token_times = token_times

    def requests(self) -> np.ndarray:
        """Return the request table."""
        workload = self._run.workload
        return tables.with_text_ids(tables.request_rows(workload, tables.request_dtype(workload.request_ids)))

    def iterations(self) -> np.ndarray:
        """Return the iteration table."""
        return _asked_for(self._iterations, "iterations")

    def token_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets and times in ns."""
        return _asked_for(self._token_times, "token_times")

    def labels(self) -> dict[str, list[str]]:
        """Return the names behind the codes of the request table, by column."""
        return {column: list(names) for column, names in self._run.workload.labels.items() if len(names)}


def _asked_for(table, key: str):
    if table is None:
        raise LookupError(f"there is no such table: [output] {key} was false")
    return table
