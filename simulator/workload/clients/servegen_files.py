"""The files of ServeGen: the windows of each client, and the lengths of its requests.

A folder holds, for each client k, `chunk-k-trace.csv` (start of a window in s, requests/s, cv, pattern, shape, scale;
no header) and `chunk-k-dataset.json` ({start: {field: text of {value: probability}}}).
Source: alibaba/ServeGen at f891d118, servegen/clientpool.py, data/.
"""
import re
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from simulator.core.paths import readable
from simulator.errors import InputErrors
from simulator.workload.limits import MAX_TOKENS
from simulator.workload.reading.faults import Faults, quoted
from simulator.workload.reading.files import check_text, read_bytes

WINDOW_S = 600.0                # length if a trace has a single window, as in the published ones
PATTERNS = ("Gamma", "Weibull", "")
NUM_COLUMNS = 6
_decoder = msgspec.json.Decoder(dict[str, dict[str, str]])


class Window(NamedTuple):
    """A client's arrivals for some time; without a pattern it sends nothing."""

    rate_per_s: float
    pattern: str
    shape: float


class Distribution(NamedTuple):
    """Values in ascending order, and their cumulative probabilities."""

    values: np.ndarray
    cumulative: np.ndarray

    def at(self, u: np.ndarray) -> np.ndarray:
        """Return the first value with a cumulative probability of at least u."""
        return self.values[np.minimum(np.searchsorted(self.cumulative, u), len(self.values) - 1)]


class Trace:
    """The windows of a client, read on demand.

    A trace has 2,016 windows, a run needs a few.
    """

    def __init__(self, path: Path):
        data = read_bytes(path)
        check_text(path, data)
        self._lines = data.decode().splitlines()
        self._faults = Faults(path)
        self.window_s = self._start(1) - self._start(0) if len(self._lines) > 1 else WINDOW_S
        if not self.window_s > 0:
            self._faults.add(2, f"window start: expected later than that of line 1, found {self._cells(1)[0]}")
        self._faults.raise_if_any()

    def window(self, start_s: float) -> Window:
        """Return the window that begins at `start_s`.

        Raises
        ------
        InputErrors
            There is none, or its line has a fault.
        """
        row = round((start_s - self._start(0)) / self.window_s)
        if not 0 <= row < len(self._lines) or self._start(row) != start_s:
            row = next((i for i in range(len(self._lines)) if self._start(i) == start_s), None)
        if row is None:
            self._faults.add(0, f"no window begins at {start_s:g} s")
            self._faults.raise_if_any()
        cells, rate, shape = self._cells(row), self._number(row, 1), self._number(row, 4)
        if cells[3] not in PATTERNS:
            self._faults.add_cell(row + 1, "pattern", "Gamma, Weibull or nothing", cells[3])
        elif cells[3] and not shape >= 0.001:
            self._faults.add_cell(row + 1, "shape", "0.001 or more", cells[4])
        self._faults.raise_if_any()
        return Window(rate, cells[3], shape)

    def mean_rate_per_s(self) -> float:
        """Return the mean of all windows."""
        return float(np.mean([self._number(row, 1) for row in range(len(self._lines))]))

    def _start(self, row: int) -> float:
        return self._number(row, 0)

    def _cells(self, row: int) -> list[str]:
        cells = self._lines[row].split(",")
        if len(cells) != NUM_COLUMNS:
            self._faults.add(row + 1, f"expected {NUM_COLUMNS} cells: window start, rate, cv, pattern, shape, scale; "
                                      f"found {quoted(self._lines[row])}")
            self._faults.raise_if_any()
        return cells

    def _number(self, row: int, column: int) -> float:
        text = self._cells(row)[column]
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not 0 <= number < float("inf"):
            self._faults.add_cell(row + 1, ("window start", "rate", "cv", "pattern", "shape", "scale")[column],
                                  "a number of 0 or more", text)
            self._faults.raise_if_any()
        return number


class Dataset:
    """The lengths of a client's requests, by window, read on demand."""

    def __init__(self, path: Path):
        data = read_bytes(path)
        check_text(path, data)
        try:
            windows = _decoder.decode(data)
            self._windows = {float(start): fields for start, fields in windows.items()
                             if any(text.strip(" {}") for text in fields.values())}
        except (msgspec.DecodeError, ValueError) as error:
            raise InputErrors([f"{path}: expected {{start: {{field: text}}}}: {error}"]) from None
        self.path = path
        self._read = {}

    def has(self, name: str) -> bool:
        """Return whether some window has a field."""
        return any(name in fields for fields in self._windows.values())

    def start_at(self, start_s: float) -> float | None:
        """Return when the latest window with lengths begins; None: after `start_s`."""
        return max((start for start in self._windows if start <= start_s), default=None)

    def fields(self, start_s: float) -> dict[str, Distribution]:
        """Return the distributions of a window by field.

        Raises
        ------
        InputErrors
            A text is not a distribution.
        """
        if start_s not in self._read:
            self._read[start_s] = {name: self._distribution(start_s, name, text)
                                   for name, text in self._windows[start_s].items()}
        return self._read[start_s]

    def _distribution(self, start_s: float, name: str, text: str) -> Distribution:
        place = f"{self.path}: window {start_s:g}, {name}"
        if not re.fullmatch(r"\{[-+.:,\seE0-9]*\}", text) or text.count(":") == 0:
            raise InputErrors([f"{place}: expected {{value: probability, ...}}, found {quoted(text)}"])
        try:
            pairs = np.array(text[1:-1].replace(":", ",").rstrip(", ").split(","), float).reshape(-1, 2)
        except ValueError as error:
            raise InputErrors([f"{place}: expected {{value: probability, ...}}: {error}"]) from None
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        if not (np.all(pairs >= 0) and np.all(pairs <= MAX_TOKENS) and pairs[:, 1].sum() > 0):
            raise InputErrors([f"{place}: expected values and probabilities from 0 to {MAX_TOKENS}, not all of the "
                               "latter 0"])
        return Distribution(pairs[:, 0], np.cumsum(pairs[:, 1]))


def client_numbers(folder: str) -> dict[int, Path]:
    """Return the traces in a folder by client, in ascending order.

    Raises
    ------
    InputErrors
        There is no such folder, or no trace in it.
    """
    place = Path(readable(folder))
    if not place.is_dir():
        raise InputErrors([f"{folder}: expected a folder of chunk-NUMBER-trace.csv, " + (
            "found a file" if place.exists() else "there is none")])
    named = ((re.fullmatch(r"chunk-(\d+)-trace\.csv(\.gz)?", path.name), path) for path in place.iterdir())
    found = {int(match[1]): path for match, path in named if match}
    if not found:
        raise InputErrors([f"{folder}: no chunk-NUMBER-trace.csv is in it"])
    return dict(sorted(found.items()))
