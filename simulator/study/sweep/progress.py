"""Progress of a study: a bar on a terminal, else a line every half minute."""
import sys
import time
from collections.abc import Callable

from simulator.study.sweep.trial import Finished

LINE_S = 30.0


class SweepProgress:
    """Shows runs done, failed and refused, runs a second, the time left.

    A context manager.

    Parameters
    ----------
    total : number of runs. quiet : show nothing. tell : callback for a line, without a terminal.
    """

    def __init__(self, total: int, quiet: bool, tell: Callable[[str], None]):
        self._tell = tell
        self._total, self._quiet = total, quiet
        self._done = self._failed = self._refused = 0
        self._began_s = self._printed_s = time.monotonic()
        self._bar = None

    def __enter__(self):
        if not self._quiet and sys.stderr.isatty():
            from tqdm import tqdm  # 12 ms that a study without a terminal does without
            self._bar = tqdm(total=self._total, unit=" runs", dynamic_ncols=True, smoothing=0.1)
        return self

    def __exit__(self, *exception):
        if self._bar is not None:
            self._bar.close()

    def show(self, finished: Finished, total: int | None = None) -> None:
        """Count a run.

        total : new number of runs, where some were added meanwhile.
        """
        self._done += 1
        self._failed += finished.status in ("failed", "timeout", "killed")
        self._refused += finished.status == "refused"
        self._total = max(self._total, total or 0)
        if self._bar is not None:
            self._bar.total = self._total
            self._bar.set_postfix_str(self._bad(), refresh=False)
            self._bar.update()
        elif not self._quiet and time.monotonic() - self._printed_s >= LINE_S:
            self._printed_s = time.monotonic()
            self._tell(self.line())

    def line(self) -> str:
        """Return the progress, in words."""
        spent_s = max(time.monotonic() - self._began_s, 1e-9)
        rate = self._done / spent_s
        left_s = (self._total - self._done) / rate if rate else float("inf")
        return f"{self._done:,}/{self._total:,} runs{self._bad()}, {rate:,.1f} runs/s, {_clock(left_s)} left"

    def _bad(self) -> str:
        return f", {self._failed} failed" * bool(self._failed) + f", {self._refused} refused" * bool(self._refused)


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
