"""Form `observed`: observed.csv, from `observe` and `import`; each request arrives at its time of sending.

TTFT and E2E count from the sending; TPOT is (E2E - TTFT) / (output tokens - 1) where there is more than one. Requests
that failed are left out.
"""
import msgspec
import numpy as np

from simulator.errors import InputErrors
from simulator.study.accuracy.case import Case
from simulator.workload.formats.observed import scan_observed, served, texts_of
from simulator.workload.limits import MISSING
from simulator.workload.reading.csv_scan import Scan
from simulator.workload.reading.files import read_bytes

LEVEL = "request"
ROLES = ("requests",)
PEER_KEY = "role"
MS, NS_PER_MS = 1e3, 1e6


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No keys."""


def read(data_set) -> list[Case]:
    """Return the replay.

    Raises
    ------
    InputErrors
        Every fault of the file, with line and column.
    """
    path = data_set.path("requests")
    scan = scan_observed(path, read_bytes(path))
    rows, sent_ns = served_rows(path, scan), scan.values["sent_s"]
    ids = texts_of(scan, "request_id")
    trace = {"type": "trace", "path": str(path.absolute()), "format": "observed"}
    times = times_of(scan)
    ends_ms = (sent_ns / NS_PER_MS + times["e2e"])[rows]
    measured = {name: values[rows] for name, values in times.items()}
    if np.isfinite(ends_ms).all():
        measured["makespan"] = float(ends_ms.max() - sent_ns[rows].min() / NS_PER_MS) / MS
    return [Case(
        data_set.says.name, {"workload": trace}, measured, arrivals_ns=sent_ns[rows] - sent_ns[rows].min(),
        lengths=np.stack([scan.values["input_tokens"], scan.values["output_tokens"]], axis=1)[rows],
        request_ids=tuple(ids[row] for row in rows))]


def served_rows(path, scan: Scan) -> np.ndarray:
    """Return the rows of answered requests, in the order of sending.

    Raises
    ------
    InputErrors
        There are none, or their times of sending are missing.
    """
    rows, sent_ns = np.flatnonzero(served(scan)), scan.values["sent_s"]
    if not len(rows):
        raise InputErrors([f"{path}: no request was answered"])
    if (sent_ns[rows] == MISSING).any():
        raise InputErrors([f"{path}: sent_s: missing; what was sent at no known time cannot be simulated again"])
    return rows[np.argsort(sent_ns[rows], kind="stable")]


def times_of(scan: Scan) -> dict[str, np.ndarray]:
    """Return the times of all rows, ms; NaN: not measured, or not defined."""
    ttft, e2e = (_ms(scan, name) for name in ("ttft_s", "e2el_s"))
    gaps = scan.values["output_tokens"] - 1.0
    gaps[gaps <= 0.0] = np.nan
    return {"ttft": ttft, "tpot": (e2e - ttft) / gaps, "e2e": e2e}


def _ms(scan: Scan, name: str) -> np.ndarray:
    values = scan.values.get(name)
    if values is None:
        return np.full(len(scan.lines), np.nan)
    return np.where((values == MISSING) | ~served(scan), np.nan, values / NS_PER_MS)
