"""A bar on stderr while the simulation runs: requests done, simulated time, speed.

Also a bar while results are read for a report, or exported.
"""
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

REFRESH_S = 0.1
FILE, FILE_S = "progress.json", 1.0     # in the directory where results grow; time between two writes
ROWS_DELAY_S = 0.5              # shorter work needs no bar
USUAL_SIZE = {"ncols": 80, "nrows": 24}     # for terminals of unknown size: `script`, docker -t, CI


class Progress:
    """Show the progress of the simulation; use it as a context.

    Without a terminal there is no bar.

    Parameters
    ----------
    num_requests : number of requests to finish.
    quiet : show nothing in any case.
    """

    def __init__(self, num_requests: int, quiet: bool = False):
        self._bar = None
        if not quiet and sys.stderr is not None and sys.stderr.isatty():
            from tqdm import tqdm  # 20 ms, needed only on a terminal

            size = {"dynamic_ncols": True} if _tells_its_size() else USUAL_SIZE
            self._bar = tqdm(total=num_requests, file=sys.stderr, leave=False, unit=" requests", **size,
                             bar_format="{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} requests{postfix}")
        self._began_s = self._shown_s = time.perf_counter()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self._bar is not None:
            self._bar.close()

    def show(self, clock_ns: int, finished_requests: int) -> None:
        """Show the simulated time reached and the requests that are finished by now."""
        now_s = time.perf_counter()
        if self._bar is not None and now_s - self._shown_s >= REFRESH_S:
            self._draw(clock_ns, finished_requests, now_s)

    def end(self, clock_ns: int, finished_requests: int) -> None:
        """Leave a line with the final state."""
        if self._bar is not None:
            self._draw(clock_ns, finished_requests, time.perf_counter())
            self._bar.leave = True

    def _draw(self, clock_ns: int, finished_requests: int, now_s: float) -> None:
        self._shown_s = now_s
        simulated_s = clock_ns / 1e9
        speed = simulated_s / (now_s - self._began_s)
        self._bar.n = finished_requests
        self._bar.set_postfix_str(f"{simulated_s:,.1f} s simulated, {speed:,.0f}x real time")


class ProgressFile:
    """The progress of a run in a file, for `watch`; use it as a context.

    The file is renewed each second and removed at the end: results hold none.

    Parameters
    ----------
    directory : where the results grow.
    num_requests : number of requests to finish.
    """

    def __init__(self, directory: Path, num_requests: int):
        self._path, self._num_requests = directory / FILE, num_requests
        self._began_s = self._written_s = time.perf_counter()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._path.unlink(missing_ok=True)

    def show(self, clock_ns: int, finished_requests: int) -> None:
        """Write the simulated time reached and the requests that are finished by now."""
        now_s = time.perf_counter()
        if now_s - self._written_s < FILE_S:
            return
        self._written_s = now_s
        content = {"requests": self._num_requests, "finished": finished_requests, "simulated_s": clock_ns / 1e9,
                   "spent_s": now_s - self._began_s}
        with suppress(OSError):         # a run does not fail for want of its progress
            beside = self._path.with_suffix(".new")
            beside.write_text(json.dumps(content), encoding="utf-8")
            os.replace(beside, self._path)


class RowProgress:
    """Show how many of all rows are read or written; use it as a context.

    Without a terminal there is no bar, nor in the first half second.

    Parameters
    ----------
    quiet : show nothing in any case.
    """

    def __init__(self, quiet: bool = False):
        self._bar = None
        if not quiet and sys.stderr is not None and sys.stderr.isatty():
            from tqdm import tqdm

            size = {"dynamic_ncols": True} if _tells_its_size() else USUAL_SIZE
            self._bar = tqdm(total=0, file=sys.stderr, leave=False, unit=" rows", unit_scale=True, delay=ROWS_DELAY_S,
                             **size, bar_format="{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} rows, {remaining} left")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self._bar is not None:
            self._bar.close()

    def expect(self, num_rows: int) -> None:
        """Add a number of rows to the total."""
        if self._bar is not None:
            self._bar.total += num_rows

    def show(self, num_rows: int) -> None:
        """Count rows; if there are more than expected, the total grows."""
        if self._bar is not None:
            self._bar.total = max(self._bar.total, self._bar.n + num_rows)
            self._bar.update(num_rows)


def _tells_its_size() -> bool:
    try:
        return min(os.get_terminal_size(sys.stderr.fileno())) > 0
    except (OSError, ValueError):       # no file descriptor
        return True                     # tqdm finds another way
