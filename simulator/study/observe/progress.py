"""Progress of a measurement: a bar on a terminal."""
import sys
import time

from tqdm import tqdm

REFRESH_S = 0.1
BAR = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} requests{postfix}"


class ObserveProgress:
    """Shows the numbers of ended and failed requests.

    A context manager. Without a terminal there is no bar.

    total : requests; None: not known. quiet : show nothing.
    """

    def __init__(self, total: int | None, quiet: bool):
        self._ended = self._failed = 0
        self._shown_s, self._bar = 0.0, None
        if not quiet and sys.stderr is not None and sys.stderr.isatty():
            form = {} if total is None else {"bar_format": BAR}
            self._bar = tqdm(total=total, file=sys.stderr, leave=False, unit=" requests", dynamic_ncols=True, **form)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self._bar is not None:
            self._bar.close()

    def show(self, is_ok: bool, elapsed_s: float) -> None:
        """Count a request.

        elapsed_s : since the planned time of the first one.
        """
        self._ended += 1
        self._failed += not is_ok
        now_s = time.perf_counter()
        if self._bar is not None and now_s - self._shown_s >= REFRESH_S:
            self._shown_s, self._bar.n = now_s, self._ended
            self._bar.set_postfix_str(f"{elapsed_s:,.1f} s" + f", {self._failed:,} failed" * bool(self._failed))
