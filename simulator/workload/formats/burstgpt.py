"""`burstgpt`: the traces of BurstGPT, all versions, read by the names of their columns.

Source: github.com/HPMLL/BurstGPT, README.md: Timestamp (s), Session ID and Elapsed time (s) from the third version on,
Model (ChatGPT or GPT-4), Request tokens, Response tokens, Total tokens, Log Type. A response of 0 tokens is a call that
failed. The first remaining request arrives at 0.
"""
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.errors import InputErrors, did_you_mean
from simulator.workload.columns import Columns
from simulator.workload.formats.order import notes_on_order
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.csv_scan import Column, Kind, Scan
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.tables import scan_pieces

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
        kept, notes = self._kept(path, scan)
        for row in np.flatnonzero(kept & (scan.values["Request tokens"] == 0)):
            faults.add_cell(scan.lines[row], "Request tokens", "an integer >= 1", "0")
        faults.raise_if_any()
        times = scan.values["Timestamp"][kept]
        labels = {}
        if self._with_sessions:
            codes = scan.values["Session ID"][kept]
            labels["session"] = np.where(codes < 0, -1, codes), scan.texts["Session ID"]
        return Columns(
            arrival_ns=times - times.min(), prompt_tokens=scan.values["Request tokens"][kept],
            output_tokens=scan.values["Response tokens"][kept], labels=labels,
            notes=notes + notes_on_order(path, times), origin_ns=int(times.min()))

    def _kept(self, path, scan: Scan) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return a mask of the rows that are used, and notes on the others."""
        total, model = len(scan.lines), self._parameters.model_filter
        kept, notes = np.ones(total, bool), ()
        if model:
            models = scan.texts["Model"]
            if model not in models:
                raise InputErrors([f"{path}: no row of Model {quoted(model)}{did_you_mean(model, models)}"])
            kept = scan.values["Model"] == models.index(model)
            notes = (f"{path}: {total - kept.sum()} of {total} rows are not of Model {model} and were left out.",)
        if self._parameters.failures == "drop":
            failed = kept & (scan.values["Response tokens"] == 0)
            kept &= ~failed
            if failed.any():
                notes += (f"{path}: {failed.sum()} calls that failed, of {total} rows, were left out.",)
        if not kept.any():
            raise InputErrors([f"{path}: no row is left; all calls failed"])
        return kept, notes
