"""results.h5: the tables of one run. Equal rows give equal bytes: no time stamps, fixed chunks, one file version.

Every table is compressed by HDF5's standard filters (README.md has the measurement) and carries a Fletcher32 checksum.
Its attribute `fields` describes its columns; columns of codes are HDF5 enums, and an attribute of the column's name has
the labels as JSON.
"""
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import h5py
import numpy as np

from simulator.core.hdf5_target import Target
from simulator.domain import columns
from simulator.domain.run import Run
from simulator.results import tables
from simulator.results.journeys import journeys_of
from simulator.results.packed_table import FILTERS, PackedTable, chunk_rows
from simulator.results.token_times import TokenTimes
from simulator.results.traits import traits_of

FORMAT = ("v110", "v110")       # read by every HDF5 since 1.10 (2016); its chunk index grows without rebalancing
NO_LABEL = "none"               # label of codes without one: HDF5 takes no empty name


class Writer:
    """Write results.h5 while the simulation runs; use it as a context.

    Parameters
    ----------
    path : the file, replaced if it exists.
    attributes : of the root.
    iterations : whether to write their table.
    streams : further tables that grow row by row: name -> type of a row.
    """

    def __init__(self, path: Path, attributes: dict, iterations: bool, streams: Mapping[str, np.dtype]):
        self._target = Target(path)
        self._file = h5py.File(self._target, "w", libver=FORMAT, track_order=True)
        self._attributes = attributes
        self._growing, self._streams = {}, ({"iterations": tables.ITERATION} if iterations else {}) | streams

    def __enter__(self):
        self._file.attrs.update(self._attributes)
        for name, dtype in self._streams.items():
            self._growing[name] = PackedTable(_create(self._file, name, None, dtype), dtype)
        return self

    def __exit__(self, kind, *_):
        self._target.end(is_in_vain=kind is not None)
        self._file.close()
        self._target.close()

    def append(self, name: str, rows: np.ndarray) -> None:
        """Append rows, as the engine makes them, to a table that grows."""
        self._growing[name].append(rows)

    def finish(self, run: Run, requests: bool, token_times: TokenTimes | None) -> None:
        """Write the tables that are known only at the end.

        Replicas and labels are always written, the rest if [output] asks for it.
        """
        while self._growing:                    # each holds a megabyte or two
            self._growing.popitem()[1].flush()
        if requests:
            self._write_requests(run)
        self._write("replicas", tables.replica_rows(run.replicas))
        for name, rows in tables.further(run).items():
            self._write(name, rows)
        self._write_labels(run.workload.labels)
        if token_times:
            self._write_token_times(token_times)

    def _write(self, name: str, rows: np.ndarray) -> None:
        self._write_blocks(self._file, name, rows.dtype, len(rows), [rows])

    def _write_blocks(self, group: h5py.Group, name: str, dtype: np.dtype, length: int, blocks: Iterable,
                      further: Mapping[str, columns.Column] | None = None) -> None:
        table = PackedTable(_create(group, name, length, dtype, further), dtype)
        for rows in blocks:
            table.append(rows)
        table.flush()

    def _write_requests(self, run: Run) -> None:
        workload, journeys = run.workload, journeys_of(run)
        traits = traits_of(run)
        dtype = tables.request_dtype(workload, journeys, traits)
        self._write_blocks(self._file, "requests", dtype, len(workload), (
            tables.request_rows(workload, dtype, journeys, slice(first, first + tables.BLOCK_ROWS), traits)
            for first in range(0, len(workload), tables.BLOCK_ROWS)),
            {name: column for part in run.parts for name, column in part.columns.items()})

    def _write_labels(self, labels: dict) -> None:
        """Write the names behind the codes of /requests, one dataset for each column that has any."""
        group = self._file.create_group("labels", track_order=True)
        for column in tables.LABEL_COLUMNS:
            if names := labels.get(column):
                encoded = np.array([str(name).encode() for name in names])
                stored = encoded.astype(h5py.string_dtype("utf-8", encoded.dtype.itemsize))
                _create(group, column, len(stored), stored.dtype)[:] = stored

    def _write_token_times(self, token_times: TokenTimes) -> None:
        group = self._file.create_group("token_times", track_order=True)
        offsets = token_times.offsets()
        self._write_blocks(group, "offsets", offsets.dtype, len(offsets), [offsets])
        self._write_blocks(group, "times_ns", np.dtype(np.int64), int(offsets[-1]), token_times.slices())


def _create(group: h5py.Group, name: str, length: int | None, dtype: np.dtype,
            further: Mapping[str, columns.Column] | None = None) -> h5py.Dataset:
    """Create a table; `length`: of rows, None: it grows. `further`: columns that `columns.TABLES` does not have."""
    stored = _stored(dtype, columns.CODES.get(name, {}))
    table = group.create_dataset(name, (length or 0,), stored, maxshape=(length or None,),
                                 chunks=(chunk_rows(dtype, length),), track_times=False, **FILTERS)
    described = columns.TABLES.get(name, {}) | (further or {})
    if described and dtype.names:
        table.attrs["fields"] = json.dumps({
            field: {"unit": described[field].unit, "text": described[field].text} for field in dtype.names})
        for field, labels in columns.CODES.get(name, {}).items():
            if field in dtype.names:
                table.attrs[field] = json.dumps(dict(enumerate(labels)))
    return table


def _stored(dtype: np.dtype, codes: dict[str, tuple[str, ...]]) -> np.dtype:
    """Return the layout with h5py's marks: text as UTF-8, codes as enums."""
    if not dtype.names:
        return dtype
    formats = {field: dtype[field] for field in dtype.names}
    for field in formats.keys() & codes.keys():
        members = {label or NO_LABEL: code for code, label in enumerate(codes[field])}
        formats[field] = h5py.enum_dtype(members, dtype[field])
    if dtype.names[0] == "request_id" and dtype["request_id"].kind == "S":
        formats["request_id"] = h5py.string_dtype("utf-8", dtype["request_id"].itemsize)
    return np.dtype({"names": dtype.names, "formats": list(formats.values()), "itemsize": dtype.itemsize,
                     "offsets": [dtype.fields[field][1] for field in dtype.names]})
