"""`counts`: a number of requests in each bin of time, from a file."""
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from simulator.workload.drawing.rates.base import Placement
from simulator.workload.limits import MAX_TIME_NS
from simulator.workload.reading.csv_scan import Column, Kind
from simulator.workload.reading.faults import Faults
from simulator.workload.reading.files import read_bytes
from simulator.workload.reading.tables import scan_columns

MAX_COUNT = 1e9
COLUMNS = {"bin_start_s": Column(Kind.SECONDS, 0, MAX_TIME_NS, required=True), "count": Column(Kind.TEXT)}


class CountsParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of counts, one bin a row, and the placement of requests in a bin."""

    path: Annotated[str, Meta(extra={"path": True}, description=(
        "CSV file, plain or .gz, with the column count, and bin_start_s unless bin_s is given"))]
    bin_s: Annotated[Annotated[float, Meta(gt=0, le=MAX_TIME_NS / 1e9)] | None, Meta(description=(
        "length of every bin, the first from 0; absent: from the column bin_start_s"))] = None
    scale: Annotated[float, Meta(gt=0, le=1e9, description=(
        "multiplies the counts; rounding remainders go to the next bin"))] = 1.0
    inside: Annotated[Literal["even", "uniform", "poisson"], Meta(description=(
        "even: evenly; uniform: anywhere in the bin; poisson: as uniform, with a Poisson number of requests"))] = "even"


class Counts(Placement):
    """`counts`."""

    Parameters = CountsParameters

    def __init__(self, parameters: CountsParameters):
        self._parameters = parameters
        self._starts_s, self._bin_s, self._counts = read_counts(
            parameters.path, read_bytes(parameters.path), parameters.bin_s)

    def arrivals_s(self, generator):
        """Return the requests of all bins.

        Request j of n in a bin, from 0, comes evenly at (j + 0.5) / n of it.
        """
        scaled = self._counts * self._parameters.scale
        if self._parameters.inside == "poisson":
            numbers = generator.poisson(scaled)
        else:
            numbers = np.diff(np.floor(np.cumsum(scaled) + 0.5).astype(np.int64), prepend=0)
        bins = np.repeat(np.arange(len(numbers)), numbers)
        if self._parameters.inside == "even":
            places = np.arange(len(bins)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
            return self._starts_s[bins] + self._bin_s * (places + 0.5) / numbers[bins]
        return np.sort(self._starts_s[bins] + self._bin_s * generator.random(len(bins)))


def read_counts(path: str | Path, data: bytes, bin_s: float | None) -> tuple[np.ndarray, float, np.ndarray]:
    """Return when bins begin (s), the length of a bin (s), and the counts of bins.

    data : content of the file.

    Raises
    ------
    InputErrors
        All faults of the file, by line.
    """
    faults = Faults(path)
    needed = ("count",) if bin_s else ("bin_start_s", "count")
    scan = scan_columns(path, data, {name: COLUMNS[name] for name in needed}, needed, faults)
    texts = scan.texts["count"]
    counts = np.array([_count(texts[code] if code >= 0 else "", line, faults) for code, line in zip(
        scan.values["count"].tolist(), scan.lines.tolist(), strict=True)])
    faults.raise_if_any()
    if bin_s:
        return np.arange(len(counts)) * bin_s, bin_s, counts
    starts_ns = scan.values["bin_start_s"]
    if len(starts_ns) < 2:
        faults.add(0, "one bin_start_s does not tell how long a bin is; give bin_s")
        faults.raise_if_any()
    width_ns = int(starts_ns[1] - starts_ns[0])
    for row in np.flatnonzero((np.diff(starts_ns) != width_ns) | (np.diff(starts_ns) <= 0)) + 1:
        faults.add(int(scan.lines[row]), f"bin_start_s: expected bins of equal length, ascending, the next at "
                   f"{(starts_ns[row - 1] + width_ns) / 1e9:g}, found {starts_ns[row] / 1e9:g}")
    faults.raise_if_any()
    return starts_ns / 1e9, width_ns / 1e9, counts


def _count(text: str, line: int, faults: Faults) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_COUNT:
        faults.add_cell(line, "count", f"a number from 0 to {MAX_COUNT:.0e}", text)
    return value
