"""`observed`: observed.csv, a client's measurements of requests to a real server; replayed at their sending times.

Columns: those of `observed_columns`, in any order, and `prompt` as in a native trace if shared parts are known.
Needed are request_id, sent_s, input_tokens, output_tokens and status. Results of the requests are ignored, except
failures: their cost for the server is unknown, so they are left out, with a note.
"""
import csv
import io
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.errors import InputErrors
from simulator.workload.columns import Columns, first_rows, reordered
from simulator.workload.formats.observed_columns import COLUMNS as NAMES
from simulator.workload.formats.observed_prompts import as_long_as, planned_prompts
from simulator.workload.formats.order import notes_on_order
from simulator.workload.formats.prompts import prompts_of
from simulator.workload.limits import MAX_TIME_NS, MISSING
from simulator.workload.reading.csv_scan import Column, Kind, Scan
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.tables import scan_columns

OK = "ok"
NEEDED = ("request_id", "sent_s", "input_tokens", "output_tokens", "status")
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "messages", "batched", "round")
COLUMNS = {name: Column(Kind.SECONDS, 0, MAX_TIME_NS) if name.endswith("_s")
           else Column(Kind.INTEGER) if name in _COUNTS else Column(Kind.TEXT) for name in NAMES} | {
    "request_id": Column(Kind.TEXT, required=True), "status": Column(Kind.TEXT, required=True),
    "prompt": Column(Kind.PROMPT)}


class ObservedParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data that observed.csv lacks."""

    prompts: Annotated[str, Meta(extra={"path": True}, description=(
        "native trace of the planned requests, trace.csv of `observe`, with shared parts in its column prompt; absent: "
        "that column of observed.csv, if it has one"))] = ""


class Observed:
    """The reader of observed.csv."""

    Parameters = ObservedParameters

    def __init__(self, parameters: ObservedParameters = ObservedParameters()):     # noqa: B008 (it is frozen)
        self._given = parameters

    def read(self, path: str | Path, data: bytes) -> Columns:
        """Return the served requests, in file order.

        Raises
        ------
        InputErrors
            All faults of the file, by line and column.
        """
        scan = scan_observed(path, data)
        has_served = served(scan)
        faults = Faults(path)
        _check_served(scan, has_served, faults)
        ids = texts_of(scan, "request_id")
        lengths = np.maximum(scan.values["input_tokens"], 1)
        faults.raise_if_any()
        cells, notes = self._prompts(path, scan, has_served)
        prompts = None
        if "prompt" in cells.values:
            prompts = prompts_of(cells._replace(values=cells.values | {"num_prefill_tokens": lengths}), ids, faults)
        faults.raise_if_any()
        columns = Columns(
            arrival_ns=np.maximum(scan.values["sent_s"], 0), prompt_tokens=lengths,
            output_tokens=np.maximum(scan.values["output_tokens"], 0), request_ids=ids, labels=_labels(scan),
            prompts=prompts)
        notes += _notes(path, cells, has_served)
        if not has_served.all():
            order = np.argsort(~has_served, kind="stable")
            columns = first_rows(replace(reordered(columns, order), most=int(has_served.sum())))
        return replace(columns, notes=notes + notes_on_order(path, columns.arrival_ns))


    def _prompts(self, path: str | Path, scan: Scan, has_served: np.ndarray) -> tuple[Scan, tuple[str, ...]]:
        """Return the cells with a column of prompts, if there is one, and notes on it."""
        if not self._given.prompts:
            return scan, ()
        planned, ids = planned_prompts(self._given.prompts), texts_of(scan, "request_id")
        if not planned:
            return scan, ()
        strange = [name for name, is_served in zip(ids, has_served.tolist()) if is_served and name not in planned]
        if strange:
            raise InputErrors([f'{self._given.prompts}: there is no request "{strange[0]}" in it (and {len(strange)} '
                               f"altogether are not), which {path} has: it is the trace of another run"])
        lengths = scan.values["input_tokens"].tolist()
        found = [as_long_as(planned.get(name, ""), length) if length > 0 else "" for name, length in zip(ids, lengths)]
        lost = sum(prompt is None for prompt in found)
        moved = sum(prompt is not None and length > 0 and prompt != planned.get(name, "")
                    for name, prompt, length in zip(ids, found, lengths))
        text = io.StringIO()
        csv.writer(text).writerows([("row", "prompt"), *((i, prompt or "") for i, prompt in enumerate(found))])
        faults = Faults(self._given.prompts)
        column = scan_columns(self._given.prompts, text.getvalue().encode(), {"prompt": COLUMNS["prompt"]},
                              ("prompt",), faults)
        faults.raise_if_any()
        notes = (f"{path}: of {moved} requests the server counted other prompt tokens than were planned: the own part "
                 f"of their prompts is so much longer or shorter; {lost} are too short for what they share, and share "
                 "nothing.",) if moved or lost else ()
        return scan._replace(values=scan.values | {"prompt": column.values["prompt"]},
                             texts=scan.texts | column.texts, segments=column.segments), notes


def scan_observed(path: str | Path, data: bytes) -> Scan:
    """Return the cells of observed.csv; times are ns.

    Raises
    ------
    InputErrors
        Columns that are missing or unknown, cells with wrong content, duplicate ids.
    """
    faults = Faults(path)
    scan = scan_columns(path, data, COLUMNS, NEEDED, faults, strict=True)
    faults.raise_if_any()
    _check_ids(scan, faults)
    faults.raise_if_any()
    return scan


def served(scan: Scan) -> np.ndarray:
    """Return a mask of the requests that got their answer, bool (n,)."""
    return np.array([text == OK for text in scan.texts["status"]], bool)[scan.values["status"]]


def texts_of(scan: Scan, column: str) -> list[str]:
    """Return the cells of a column of text; empty ones are empty."""
    names = [*scan.texts[column], ""]
    return [names[-1 if code == MISSING else code] for code in scan.values[column].tolist()]


def _check_ids(scan: Scan, faults: Faults) -> None:
    first: dict[int, int] = {}
    for row, code in enumerate(scan.values["request_id"].tolist()):
        if code in first:
            faults.add_cell(scan.lines[row], "request_id", f"an id that is not that of line {scan.lines[first[code]]}",
                            scan.texts["request_id"][code])
        first.setdefault(code, row)


def _check_served(scan: Scan, has_served: np.ndarray, faults: Faults) -> None:
    """Add a fault for each missing value of an answered request."""
    least = {"sent_s": 0, "input_tokens": 1, "output_tokens": 0}
    values = np.stack([scan.values[name] for name in least])
    for row in np.flatnonzero(has_served & (values < np.array([*least.values()])[:, None]).any(axis=0)):
        for name, low in least.items():
            found = scan.values[name][row]
            if found < low:
                what = "a time" if name == "sent_s" else f"a number of at least {low}"
                faults.add_cell(scan.lines[row], name, f'{what} with status = "{OK}"',
                                "" if found == MISSING else str(found))
    if not has_served.any():
        raise InputErrors([f'{faults.path}: no request is left: none has status = "{OK}"'])


def _labels(scan: Scan) -> dict:
    if "session" not in scan.values or not scan.texts["session"]:
        return {}
    codes = scan.values["session"]
    return {"session": (np.where(codes == MISSING, -1, codes), scan.texts["session"])}


def _notes(path: str | Path, scan: Scan, has_served: np.ndarray) -> tuple[str, ...]:
    notes = []
    if not has_served.all():
        kinds, counts = np.unique(np.array(texts_of(scan, "status"))[~has_served], return_counts=True)
        kinds_text = ", ".join(f"{count} {kind}" for kind, count in zip(kinds.tolist(), counts.tolist()))
        notes.append(f"{path}: {(~has_served).sum()} of {len(has_served)} requests failed ({kinds_text}) and were left "
                     "out.")
    cached = scan.values.get("cached_tokens")
    if cached is not None and (cached > 0).any() and "prompt" not in scan.values:
        notes.append(f"{path}: {(cached > 0).sum()} requests found tokens in the server's cache (cached_tokens); who "
                     "shares what is not known without a column prompt, so each prompt is computed whole.")
    return tuple(notes)
