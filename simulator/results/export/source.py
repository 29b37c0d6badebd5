"""A results directory as the source of an export."""
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tomli

from simulator.domain import records
from simulator.errors import InputErrors
from simulator.results.load import load_results
from simulator.results.reader import Reader
from simulator.results.slo import only

TOKEN = np.dtype([("request", "i8"), ("time_ns", "i8")])


class Source:
    """Results of a run; tables are read on first use.

    directory : of the results.
    summary : dict, as in summary.json.

    Parameters
    ----------
    directory : of complete results.

    Raises
    ------
    InputErrors
        There are none, or they are broken.
    """

    def __init__(self, directory: Path):
        self.directory = directory
        self._result = load_results(directory)
        self._reader = Reader(Path(directory) / "results.h5")
        self.summary = self._result.summary

    @cached_property
    def experiment(self) -> Mapping[str, Any]:
        """The experiment with every default, as a TOML table."""
        path = self.directory / "resolved.toml"
        try:
            return tomli.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputErrors([f"{path}: cannot be read: {error}"]) from error

    @cached_property
    def all_requests(self) -> np.ndarray:
        """/requests, in arrival order."""
        return self._needed("requests", "requests")

    @cached_property
    def requests(self) -> np.ndarray:
        """Rows of /requests that arrived."""
        return only(self.all_requests, records.has_come(self.all_requests["status"]))

    @cached_property
    def iterations(self) -> np.ndarray:
        """/iterations, in order of start."""
        return self._needed("iterations", "iterations")

    @cached_property
    def legs(self) -> np.ndarray | None:
        """/legs, `request` a place in `requests`; None: no request left a replica early."""
        if "legs" not in self.table_names():
            return None
        legs = self._result.legs.copy()
        has_come = records.has_come(self.all_requests["status"])
        legs["request"] = (np.cumsum(has_come) - 1)[legs["request"]]
        return legs

    @cached_property
    def labels(self) -> dict[str, list[str]]:
        """Names behind the codes of /requests, by column."""
        return self._result.labels

    def token_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets and times in ns of tokens, including requests that never arrived."""
        return self._needed("token_times", "token_times")

    def table_names(self) -> list[str]:
        """Return the names of the tables that were written."""
        return self._reader.names()

    def num_rows(self, name: str) -> int:
        """Return how many rows a table has; of token_times, tokens; 0: no table."""
        return self._reader.num_rows("token_times/times_ns" if name == "token_times" else name) or 0

    def blocks(self, name: str, num_rows: int) -> Iterator[np.ndarray]:
        """Yield a table in blocks of at most `num_rows` rows, at least one block.

        Of token_times a row is a token: `request`, a row in /requests, and `time_ns`.
        """
        if name != "token_times":
            yield from self._reader.blocks(name, num_rows)
            return
        offsets = np.concatenate(list(self._reader.blocks("token_times/offsets", num_rows)))
        first = 0
        for times_ns in self._reader.blocks("token_times/times_ns", num_rows):
            tokens = np.empty(len(times_ns), TOKEN)
            tokens["request"] = np.searchsorted(offsets, np.arange(first, first + len(times_ns)), "right") - 1
            tokens["time_ns"] = times_ns
            yield tokens
            first += len(times_ns)

    def _needed(self, table: str, key: str):
        try:
            return getattr(self._result, table)
        except LookupError as error:
            raise InputErrors([f"{self.directory}: this format needs /{table}, which the run did not write; "
                               f"run again with --set output.{key}=true"]) from error
