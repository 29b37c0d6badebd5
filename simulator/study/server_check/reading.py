"""Files of a server's metrics as one series."""
import os
from collections.abc import Iterable
from pathlib import Path

from simulator.errors import InputErrors, collect_faults
from simulator.study.measured.source import Source
from simulator.study.server_check.series import ServerSeries, series_of
from simulator.study.server_metrics.files import FORMATS, files_in, read

LEAST = 3                           # readings: with fewer, a mean has no error


def read_series(files: Iterable[str | os.PathLike]) -> ServerSeries:
    """Read the series of one server from its files.

    Raises
    ------
    InputErrors
        A file cannot be read, or is of no known format; too few readings.
    """
    paths = [path for file in files for path in files_in(Path(file))]
    found = collect_faults(*(lambda path=path: read(Source(str(path))) for path in paths))
    return checked(series_of(each for of_file in found for each in of_file), ", ".join(map(str, files)))


def checked(series: ServerSeries, source: str) -> ServerSeries:
    """Return a series, or refuse a short one.

    Raises
    ------
    InputErrors
        Fewer than three readings, or none of the requests.
    """
    if "running" not in series.values:
        raise InputErrors([f"{source}: no series vllm:num_requests_running; expected {FORMATS}"])
    if len(series.times_s) < LEAST:
        raise InputErrors([f"{source}: {len(series.times_s)} readings at different times, expected at least {LEAST}"])
    return series
