"""results.h5: the tables of one run. The same rows give the same bytes: no time stamps, fixed chunks, one file version.

Nothing is compressed: shuffle and LZF shrink the iterations to a quarter but cost four times as much as writing them.
"""
import json
from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np

from simulator.domain import records
from simulator.domain.run import Run
from simulator.results import tables
from simulator.results.journeys import journeys_of
from simulator.results.token_times import TokenTimes

FORMAT = ("v110", "v110")       # read by every HDF5 since 1.10 (2016); its chunk index grows without rebalancing
CHUNK_ROWS = 4096               # 256 KiB of iterations


class Writer:
    """Write results.h5 while the simulation runs; use it as a context.

    Parameters
    ----------
    path : the file, replaced if it exists.
    attributes : of the root.
    iterations : whether there is to be a table of them.
    streams : which of `tables.STREAMS` there are to be.
    """

    def __init__(self, path: Path, attributes: dict, iterations: bool, streams: Iterable[str] = ()):
        self._target = Target(path)
        self._file = h5py.File(self._target, "w", libver=FORMAT, track_order=True)
        self._attributes = attributes
        self._blocks = tables.IterationBlocks(lambda rows: self.append("iterations", rows)) if iterations else None
        self._growing = dict.fromkeys((["iterations"] if iterations else []) + list(streams))

    def __enter__(self):
        self._file.attrs.update(self._attributes)
        for name in self._growing:
            dtype = tables.STREAMS.get(name, tables.ITERATION)
            self._growing[name] = self._file.create_dataset(
                name, (0,), dtype, maxshape=(None,), chunks=(CHUNK_ROWS,), track_times=False)
        return self

    def __exit__(self, kind, *_):
        self._target.end(is_in_vain=kind is not None)
        self._file.close()
        self._target.close()

    def iterations(self, rows: np.ndarray) -> None:
        """Append rows of `records.ITERATION`."""
        self._blocks.append(rows)

    def finish(self, run: Run, requests: bool, token_times: TokenTimes | None) -> None:
        """Write what is known only at the end.

        Replicas and labels are always written, the rest where asked.
        """
        if self._blocks:
            self._blocks.flush()
        if requests:
            self._write_requests(run)
        self._file.create_dataset("replicas", data=tables.replica_rows(run.replicas), track_times=False)
        if run.lifecycle is not None:
            self._write_lifecycle(run.lifecycle)
        self._write_labels(run.workload.labels)
        if token_times:
            self._write_token_times(token_times)

    def append(self, name: str, rows: np.ndarray) -> None:
        """Append rows to a table that grows, in its own layout."""
        table = self._growing[name]
        length = len(table)
        table.resize((length + len(rows),))
        table[length:] = rows

    def _write_requests(self, run: Run) -> None:
        workload, journeys = run.workload, journeys_of(run)
        dtype = tables.request_dtype(workload.request_ids, journeys)
        table = self._file.create_dataset("requests", (len(workload),), _stored(dtype), track_times=False)
        table.attrs["status"] = json.dumps(dict(enumerate(records.STATUS_NAMES)))
        if journeys is not None:
            table.attrs["cause"] = json.dumps(dict(enumerate(records.CAUSE_NAMES)))
        for first in range(0, len(workload), tables.BLOCK_ROWS):
            last = min(first + tables.BLOCK_ROWS, len(workload))
            table[first:last] = tables.request_rows(workload, dtype, journeys, first, last).view(table.dtype)

    def _write_lifecycle(self, lifecycle: np.ndarray) -> None:
        table = self._file.create_dataset("lifecycle", data=tables.lifecycle_rows(lifecycle), track_times=False)
        table.attrs["state"] = json.dumps(dict(enumerate(records.STAGE_NAMES)))
        table.attrs["cause"] = json.dumps(dict(enumerate(records.LIFECYCLE_CAUSES)))

    def _write_labels(self, labels: dict) -> None:
        """Write the names behind the codes of /requests, one dataset for each column that has any."""
        group = self._file.create_group("labels", track_order=True)
        for column in tables.LABEL_COLUMNS:
            if names := labels.get(column):
                encoded = np.array([str(name).encode() for name in names])
                stored = encoded.astype(h5py.string_dtype("utf-8", encoded.dtype.itemsize))
                group.create_dataset(column, data=stored, track_times=False)

    def _write_token_times(self, token_times: TokenTimes) -> None:
        group = self._file.create_group("token_times", track_order=True)
        offsets = token_times.offsets()
        group.create_dataset("offsets", data=offsets, track_times=False)
        table = group.create_dataset("times_ns", (offsets[-1],), np.int64, track_times=False)
        first = 0
        for times_ns in token_times.slices():
            table[first:first + len(times_ns)] = times_ns
            first += len(times_ns)


class Target:
    """The file below HDF5, which takes no failed write.

    HDF5 itself cannot close a file after one, and crashes at exit. Here a failed write is raised; while HDF5 closes,
    failures are kept until `close`.

    Parameters
    ----------
    path : the file, replaced if it exists.
    """

    def __init__(self, path: Path):
        self._file = open(path, "w+b", buffering=0)     # noqa: SIM115 -- until close()
        self.seek, self.tell = self._file.seek, self._file.tell
        self.read, self.readinto = self._file.read, self._file.readinto
        self._is_ending = self._is_in_vain = False
        self._error = None

    def write(self, data) -> int:
        """Write all of `data`, which the system may take in parts."""
        data, done = memoryview(data), 0
        while done < len(data) and not self._is_in_vain:
            try:
                done += self._file.write(data[done:])
            except OSError as error:
                self._fail(error)
        return len(data)

    def truncate(self, size: int) -> int:
        """Set the size of the file."""
        if not self._is_in_vain:
            try:
                self._file.truncate(size)
            except OSError as error:
                self._fail(error)
        return size

    def flush(self) -> None:
        """Do nothing: what is written is handed to the system at once."""

    def end(self, is_in_vain: bool) -> None:
        """Keep failures for `close`; `is_in_vain`: do not even write from now on."""
        self._is_ending, self._is_in_vain = True, is_in_vain

    def close(self) -> None:
        """Close the file; raise what was kept."""
        self._file.close()
        if self._error is not None:
            raise self._error

    def _fail(self, error: OSError) -> None:
        if not self._is_ending:
            raise error
        self._error, self._is_in_vain = error, True


class Reader:
    """Read the tables of results.h5, each when it is asked for."""

    def __init__(self, path: Path):
        self._path = path

    def attributes(self) -> dict:
        """Return the attributes of the root."""
        with h5py.File(self._path) as file:
            return dict(file.attrs)

    def requests(self) -> np.ndarray:
        """Return /requests; ids that are text come as text."""
        return tables.with_text_ids(self._table("requests"))

    def iterations(self) -> np.ndarray:
        """Return /iterations."""
        return self._table("iterations")

    def stream(self, name: str) -> np.ndarray:
        """Return one of `tables.STREAMS`."""
        return self._table(name)

    def lifecycle(self) -> np.ndarray:
        """Return /lifecycle."""
        return self._table("lifecycle")

    def token_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets and times_ns of /token_times."""
        return self._table("token_times/offsets"), self._table("token_times/times_ns")

    def labels(self) -> dict[str, list[str]]:
        """Return the names behind the codes of /requests, by column."""
        with h5py.File(self._path) as file:
            return {column: names.asstr()[:].tolist() for column, names in file["labels"].items()}

    def _table(self, name: str) -> np.ndarray:
        with h5py.File(self._path) as file:
            if name not in file:
                raise LookupError(f"{self._path}: there is no /{name}; {tables.why_absent(name.partition('/')[0])}")
            return file[name][:]


def _stored(dtype: np.dtype) -> np.dtype:
    """Return the same layout with text marked as UTF-8, which is how h5py names it."""
    fields = [(name, dtype[name]) for name in dtype.names]
    if dtype["request_id"].kind == "S":
        fields[0] = ("request_id", h5py.string_dtype("utf-8", dtype["request_id"].itemsize))
    return np.dtype(fields)
