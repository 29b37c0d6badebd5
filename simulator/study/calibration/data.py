"""Measurements as arrays, and doubts about them."""
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simulator.errors import InputErrors
from simulator.study.accuracy.observed import served_rows, times_of
from simulator.study.calibration.blocks import blocks_of, is_held_out
from simulator.study.measured.observed import read_steps
from simulator.study.measured.record import STEP_COLUMNS, counted
from simulator.study.measured.source import Source
from simulator.study.measured.write import REQUESTS, STEPS
from simulator.workload.formats.observed import scan_observed, texts_of
from simulator.workload.limits import MISSING
from simulator.workload.reading.csv_scan import Scan
from simulator.workload.reading.files import read_bytes

NS_PER_S, NS_PER_MS, US_PER_S = 1e9, 1e6, 1e6
METRICS = ("ttft", "tpot", "e2e")       # ms
SERVER = "server.json"
SAID = {                                # key of the verdict -> sentence
    "client_bound": "client-bound: requests were sent late, the client could not keep up",
    "too_many_failed": "too many requests failed",
    "too_many_short": "too many answers are shorter than asked for: another load was served than is simulated"}
MOST_FAILED = 0.05
LATE_MS, LATE_FRAC = 2.0, 0.02          # a client with a p99 of the lag above both is the bottleneck


class Requests(NamedTuple):
    """Answered requests, in the order of sending.

    path : of observed.csv.
    sent_s : float64 (n,). times : metric -> float64 (n,), ms; NaN: not measured. output_tokens : int64 (n,).
    is_held : bool (n,), held out of the fit.
    num_failed : number of unanswered requests.
    late_ms : lag of sending behind the plan, of all requests with both times, failures included.
    """

    path: str
    ids: list[str]
    sent_s: np.ndarray
    times: dict[str, np.ndarray]
    output_tokens: np.ndarray
    is_held: np.ndarray
    num_failed: int
    late_ms: np.ndarray


class Steps(NamedTuple):
    """Iterations of an engine; columns of steps.csv, float64 (m,), NaN: not measured.

    path : of steps.csv. is_held : bool (m,), held out of the fit.
    """

    path: str
    columns: dict[str, np.ndarray]
    is_held: np.ndarray

    @property
    def duration_us(self) -> np.ndarray:
        """Duration of each iteration."""
        return US_PER_S * self.columns["duration_s"]

    @property
    def num_steps(self) -> int:
        """Number of iterations; `len` is that of the tuple."""
        return len(self.is_held)


def files_of(path: str) -> tuple[Path | None, Path | None]:
    """Return the files of requests and of iterations at a path, or None.

    Raises
    ------
    InputErrors
        There is neither.
    """
    given = Path(path)
    folder = given if given.is_dir() else given.parent
    requests, steps = folder / REQUESTS, folder / STEPS
    if given.is_file() and given.name != STEPS:
        requests = given
    elif given.is_file():
        requests = Path()
    found = tuple(file if file.is_file() else None for file in (requests, steps))
    if not given.exists() or found == (None, None):
        raise InputErrors([f"{path}: no such file, nor a folder with {REQUESTS} or {STEPS}; `simulator observe` and "
                           "`simulator import` write them"])
    return found


def read_requests(path: Path, is_held: bool) -> Requests:
    """Return the requests of observed.csv.

    Raises
    ------
    InputErrors
        All faults of the file, by line and column; the times of sending are missing.
    """
    scan = scan_observed(path, read_bytes(path))
    rows = served_rows(path, scan)
    times = {name: values[rows] for name, values in times_of(scan).items()}
    if not any(np.isfinite(values).any() for values in times.values()):
        raise InputErrors([f"{path}: ttft_s, e2el_s: of no request; there is nothing to compare with"])
    ids = texts_of(scan, "request_id")
    sent_s = scan.values["sent_s"][rows] / NS_PER_S
    return Requests(str(path), [ids[row] for row in rows], sent_s, times, scan.values["output_tokens"][rows],
                    np.full(len(rows), is_held), len(scan.lines) - len(rows), _late_ms(scan))


def read_steps_of(path: Path, is_held: bool) -> Steps:
    """Return the iterations of steps.csv.

    Raises
    ------
    InputErrors
        All faults of the file.
    """
    rows = read_steps(Source(str(path)))
    if not rows:
        raise InputErrors([f"{path}: there are no iterations in it"])
    columns = {name: np.array([np.nan if row.get(name) is None else row[name] for row in rows])
               for name in STEP_COLUMNS}
    return Steps(str(path), columns, np.full(len(rows), is_held))


def hold_out(requests: Requests | None, steps: Steps | None,
             fraction: float) -> tuple[Requests | None, Steps | None]:
    """Return requests and iterations with the same blocks of time held out.

    Raises
    ------
    InputErrors
        There is only one block, or iterations have no times.
    """
    times = [each for each in (requests and requests.sent_s, steps and steps.columns["start_s"]) if each is not None]
    place = (requests or steps).path
    if steps is not None and np.isnan(steps.columns["start_s"]).any():
        raise InputErrors([f"{steps.path}: start_s: missing; without it no block of time can be held out: name another "
                           "file in held_out"])
    count = 1 + max(int(blocks_of(each).max()) for each in times)
    if count < 2:
        raise InputErrors([f"{place}: study.fraction: all of it lies within 10 s, and whole blocks of 10 s are held "
                           "out; measure longer, or name another file in held_out"])
    found = [each and each._replace(is_held=is_held_out(blocks_of(at), count, fraction))
             for each, at in zip(filter(None, (requests, steps)), times, strict=True)]
    return (found.pop(0) if requests else None), (found.pop(0) if steps else None)


def doubts(requests: Requests) -> list[str]:
    """Return why the times of requests are not the server's, a sentence each.

    Reasons: more than 5 % of failures, or a client that sends late: p99 of sent - planned above 2 ms and above 2 % of
    the median TTFT. Where `observe` wrote server.json beside them its verdict is used instead: it accounts for requests
    that waited for a place in flight and for answers that are shorter than requested.

    Raises
    ------
    InputErrors
        server.json cannot be read.
    """
    found, verdict = [], _verdict_of(Path(requests.path).with_name(SERVER))
    if verdict is not None:
        return [f"{requests.path}: {SERVER} says {what}" for name, what in SAID.items() if verdict.get(name)]
    total = len(requests.ids) + requests.num_failed
    if requests.num_failed > MOST_FAILED * total:
        found.append(f"{requests.path}: {requests.num_failed} of {counted(total, 'request')} failed, more than "
                     f"{MOST_FAILED:.0%}: the load that the server had is not known")
    late_ms = requests.late_ms
    ttft_ms = requests.times["ttft"][np.isfinite(requests.times["ttft"])]
    if len(late_ms) and len(ttft_ms):
        p99, limit = float(np.percentile(late_ms, 99)), max(LATE_MS, LATE_FRAC * float(np.median(ttft_ms)))
        if p99 > limit:
            found.append(f"{requests.path}: client-bound: one of a hundred requests was sent {p99:.2f} ms late or "
                         f"more, at most {limit:.2f} ms are allowed: the client could not keep up")
    return found


def _verdict_of(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))["summary"]["verdict"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputErrors([f"{path}: expected what `simulator observe` writes: {error}"]) from error


def _late_ms(scan: Scan) -> np.ndarray:
    if "planned_s" not in scan.values:
        return np.empty(0)
    planned, sent = scan.values["planned_s"], scan.values["sent_s"]
    is_known = (planned != MISSING) & (sent != MISSING)
    return (sent - planned)[is_known] / NS_PER_MS
