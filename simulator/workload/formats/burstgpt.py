"""`burstgpt`: the traces of BurstGPT, all versions, read by the names of their columns.

Source: github.com/HPMLL/BurstGPT, README.md: Timestamp (s), Session ID and Elapsed time (s) from the third version on,
Model (ChatGPT or GPT-4), Request tokens, Response tokens, Total tokens, Log Type. A response of 0 tokens is a call that
failed. The first remaining request arrives at 0.
"""
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.errors import InputErrors, did_you_mean
from simulator.workload.columns import Columns
from simulator.workload.formats.order import notes_on_order
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.csv_scan import Column, Kind, Scan
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.tables import scan_pieces, scans_of

REQUIRED = {
    "Timestamp": Column(Kind.SECONDS, 0, MAX_TIME_NS, required=True),
    "Model": Column(Kind.TEXT, required=True),
    "Request tokens": Column(Kind.INTEGER, 0, required=True),
    "Response tokens": Column(Kind.INTEGER, 0, required=True),
}
SESSION = {"Session ID": Column(Kind.TEXT)}


class BurstgptParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The choice of rows."""

    failures: Annotated[Literal["drop", "keep"], Meta(description=(
        "calls that failed, with a response of 0 tokens: left out, or kept"))] = "drop"
    model_filter: Annotated[str, Meta(description='only rows of this Model, such as "GPT-4"; "": all')] = ""


class Burstgpt:
    """The reader of BurstGPT traces.

    with_sessions : Session ID becomes the session of requests, which routers see; requests still come at their times.
    """

    Parameters = BurstgptParameters
    names_sessions = True

    def __init__(self, parameters: BurstgptParameters, with_sessions: bool = False):
        self._parameters, self._with_sessions = parameters, with_sessions

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the requests of a file that holds `data`, see `read_pieces`."""
        return self.read_pieces(path, (data,))

    def read_pieces(self, path: str | Path, pieces: Iterable[bytes]) -> Columns:
        """Return the requests of a file that holds the pieces, in file order.

        Raises
        ------
        InputErrors
            All faults of the file, by line; no row is left.
        """
        faults = Faults(path)
        known = REQUIRED | (SESSION if self._with_sessions else {})
        scan = scan_pieces(path, pieces, known, tuple(known), faults)
        faults.raise_if_any()
        columns, counts = self._columns(scan, faults)
        notes = self._notes(path, scan.texts["Model"], counts)
        faults.raise_if_any()
        times = columns.arrival_ns
        return replace(columns, arrival_ns=times - times.min(), origin_ns=int(times.min()),
                       notes=notes + notes_on_order(path, times))

    def parts(self, path: str | Path, pieces: Iterable[bytes]) -> Iterator[Columns]:
        """Yield the requests of each piece at the times of the file, then the notes.

        Raises
        ------
        InputErrors
            All faults of the file, by line; no row is left.
        """
        faults, counts = Faults(path), np.zeros(3, np.int64)
        known = REQUIRED | (SESSION if self._with_sessions else {})
        for scan in scans_of(path, pieces, known, tuple(known), faults):
            columns, found = self._columns(scan, faults)
            counts += found
            yield columns
        faults.raise_if_any()
        yield Columns(*np.empty((3, 0), np.int64), notes=self._notes(path, scan.texts["Model"], counts.tolist()))

    def _columns(self, scan: Scan, faults: Faults) -> tuple[Columns, tuple[int, int, int]]:
        """Return the rows in use, and counts of all, of other models, of failed calls."""
        total, model = len(scan.lines), self._parameters.model_filter
        kept, failed = np.ones(total, bool), np.zeros(total, bool)
        if model:
            models = scan.texts["Model"]
            kept = scan.values["Model"] == (models.index(model) if model in models else -2)
        num_others = total - int(kept.sum())
        if self._parameters.failures == "drop":
            failed = kept & (scan.values["Response tokens"] == 0)
            kept &= ~failed
        for row in np.flatnonzero(kept & (scan.values["Request tokens"] == 0)):
            faults.add_cell(scan.lines[row], "Request tokens", "an integer >= 1", "0")
        labels = {}
        if self._with_sessions:
            codes = scan.values["Session ID"][kept]
            labels["session"] = np.where(codes < 0, -1, codes), scan.texts["Session ID"]
        return Columns(
            arrival_ns=scan.values["Timestamp"][kept], prompt_tokens=scan.values["Request tokens"][kept],
            output_tokens=scan.values["Response tokens"][kept], labels=labels), (total, num_others, int(failed.sum()))

    def _notes(self, path, models: list[str], counts: tuple[int, int, int]) -> tuple[str, ...]:
        """Return notes on the rows that are left out; counts : as `_columns` returns them."""
        (total, num_others, num_failed), model, notes = counts, self._parameters.model_filter, ()
        if model and model not in models:
            raise InputErrors([f"{path}: no row of Model {quoted(model)}{did_you_mean(model, models)}"])
        if model:
            notes = (f"{path}: {num_others} of {total} rows are not of Model {model} and were left out.",)
        if num_failed:
            notes += (f"{path}: {num_failed} calls that failed, of {total} rows, were left out.",)
        if num_others + num_failed == total:
            raise InputErrors([f"{path}: no row is left; all calls failed"])
        return notes
