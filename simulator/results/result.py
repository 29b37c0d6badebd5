"""The caller's object after a run, or after loading its results."""
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path

import numpy as np

from simulator.results.frames import dataset_of, frame_of, polars_of


class Result:
    """Results of one experiment; a table is read, or made, on first use.

    summary : dict, as in summary.json.
    directory : of the results; None: they were not written.
    interrupted_by : number of the signal that ended the run early; None: none did.
    stands_still : the run would never have ended, by a fault of the program that `summary["diagnosis"]` describes.

    Parameters
    ----------
    tables : `reader.Reader` or `memory.MemoryTables`.
    """

    def __init__(self, summary: dict, tables, directory: Path | None = None):
        self.summary = summary
        self.directory = directory
        self.interrupted_by: int | None = None
        self.stands_still = False
        self._tables = tables

    def __getstate__(self):
        """Leave out of a pickle the tables that were read from files: they are read again."""
        if self.directory is None:
            return self.__dict__
        kept = ("summary", "directory", "interrupted_by", "stands_still", "_tables")
        return {name: self.__dict__[name] for name in kept}

    def __repr__(self):
        state = "complete" if self.summary["complete"] else "incomplete"
        return f"<Result {self.summary['name']!r}: {self.summary['requests']['completed']} requests completed, {state}>"

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the summary table, and two charts with the extra `report`; below 60 kB."""
        return import_module("simulator.results.notebook").html_of(self)     # 15 ms, which no run needs to start

    @cached_property
    def requests(self) -> np.ndarray:
        """Structured array (n,), one row a request in arrival order.

        Fields are those of /requests in results.h5.
        """
        return self._tables.table("requests")

    def request(self, row: int) -> np.ndarray:
        """Return one row of `requests`."""
        return self._tables.request(row)

    @cached_property
    def iterations(self) -> np.ndarray:
        """Structured array (m,), one row an iteration in order of start.

        Fields are those of /iterations in results.h5. LookupError where [output] iterations was false.
        """
        return self._tables.table("iterations")

    def columns(self, table: str, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Return columns of `requests` or `iterations` alone.

        It takes less time than the whole table. Columns that the table lacks are left out. LookupError where the table
        was not written.
        """
        return self._tables.columns(table, names)

    def column_blocks(self, table: str, names: Iterable[str]) -> Iterator[dict[str, np.ndarray]]:
        """Yield columns of a table in blocks of rows, from the first row to the last.

        A table of any length takes the same memory. Ids of requests that are text are returned as bytes;
        otherwise like `columns`, for every table with named columns.
        """
        return self._tables.column_blocks(table, names)

    def num_rows(self, table: str) -> int | None:
        """Return how many rows a table has; None: the run did not write it."""
        return self._tables.num_rows(table)

    def token_offsets(self) -> np.ndarray:
        """Return the offsets of `token_times` alone; LookupError as `token_times`."""
        return self._tables.token_offsets()

    def token_time_blocks(self) -> Iterator[np.ndarray]:
        """Yield the times of `token_times` in blocks; LookupError as `token_times`."""
        return self._tables.token_time_blocks()

    @cached_property
    def replicas(self) -> np.ndarray:
        """Structured array, one row a replica.

        Fields are those of /replicas in results.h5.
        """
        return self._tables.table("replicas")

    @cached_property
    def token_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Offsets (n + 1,) and times in ns, both int64.

        Token j of request i was generated at `times_ns[offsets[i] + j]`. LookupError where [output] token_times was
        false.
        """
        return self._tables.token_times()

    @cached_property
    def replica_samples(self) -> np.ndarray:
        """Structured array, one row for each replica and look.

        Fields are those of /replica_samples. LookupError where [output] replica_samples_s was 0.
        """
        return self._tables.table("replica_samples")

    @cached_property
    def sampled_requests(self) -> np.ndarray:
        """Structured array, one row for every N-th request of a streamed run.

        In order of arrival. Fields are those of /sampled_requests. LookupError where [output] requests_every was 0.
        """
        return self._tables.table("sampled_requests")

    @cached_property
    def decisions(self) -> np.ndarray:
        """Structured array, one row for each routing decision, in order of time.

        Fields are those of /decisions. LookupError where [output] decisions was 0.
        """
        return self._tables.table("decisions")

    @cached_property
    def candidates(self) -> np.ndarray:
        """Structured array, the best replicas of each decision, the best first.

        Fields are those of /candidates; `decision` is a row of `decisions`. LookupError where [output] decisions was 0.
        """
        return self._tables.table("candidates")

    @cached_property
    def lifecycle(self) -> np.ndarray:
        """Structured array, one row for each change of stage of a replica.

        Fields are those of /lifecycle. LookupError where all replicas were up all the time.
        """
        return self._tables.table("lifecycle")

    @cached_property
    def legs(self) -> np.ndarray:
        """Structured array, one row for each stay of a request at a replica.

        In the order in which they began; fields are those of /legs, `request` is a row of `requests`. LookupError where
        nothing takes a request from a replica before it is done: no failures, autoscaling or migration.
        """
        return self._tables.table("legs")

    @cached_property
    def kv_tiers(self) -> np.ndarray:
        """Structured array, one row for each level of the KV tiers of each replica.

        Fields are those of /kv_tiers. LookupError where there is no [kv_tiers].
        """
        return self._tables.table("kv_tiers")

    @cached_property
    def encode_jobs(self) -> np.ndarray:
        """Structured array, one row for each item that reached an encode replica.

        By request and item; fields are those of /encode_jobs, `request` is a row of `requests`. LookupError where no
        pool encodes for others.
        """
        return self._tables.table("encode_jobs")

    @cached_property
    def labels(self) -> dict[str, list[str]]:
        """Names behind the codes in the label columns of `requests`.

        Columns are slo_class, tenant, session, model, adapter; one that no request uses is absent.
        """
        return self._tables.labels()

    def to_pandas(self, table: str = "requests"):
        """Return a table as a pandas.DataFrame.

        Codes and labels are categorical, so that `frame[frame.status == "completed"]` works; a label that a request
        does not have is missing. `token_times` has a row for each token: request, token, time_ns.

        Parameters
        ----------
        table : name of a table of results.h5, equal to the name of the property.

        Raises
        ------
        ImportError
            pandas is not installed.
        ValueError
            There is no such table.
        LookupError
            The run did not write it.
        """
        return frame_of(self, table)

    def to_polars(self, table: str = "requests"):
        """Return a table as a polars.DataFrame; codes and labels are of type Enum.

        Parameters and exceptions are those of `to_pandas`, but MissingExtra names polars.
        """
        return polars_of(self, table)

    def to_xarray(self, table: str = "requests"):
        """Return a table as an xarray.Dataset, a variable for each column.

        Their dimension is `row`.

        Codes stay numbers; the attribute `labels` of such a variable names them, `units` and `description` are those
        of `describe results table`. Parameters and exceptions are those of `to_pandas`, but MissingExtra
        names xarray.
        """
        return dataset_of(self, table)
