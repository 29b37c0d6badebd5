"""A bar on stderr while the simulation runs: requests done, simulated time, speed."""
import sys
import time

REFRESH_S = 0.1


class Progress:
    """Show how far the simulation is; use it as a context.

    Without a terminal there is no bar.

    Parameters
    ----------
    num_requests : how many are to finish.
    quiet : show nothing in any case.
    """

    def __init__(self, num_requests: int, quiet: bool = False):
        self._bar = None
        if not quiet and sys.stderr.isatty():
            from tqdm import tqdm  # 20 ms that only a terminal pays for

            self._bar = tqdm(total=num_requests, file=sys.stderr, leave=False, unit=" requests", dynamic_ncols=True,
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
        if self._bar is None or now_s - self._shown_s < REFRESH_S:
            return
        self._shown_s = now_s
        simulated_s = clock_ns / 1e9
        speed = simulated_s / (now_s - self._began_s)
        self._bar.n = finished_requests
        self._bar.set_postfix_str(f"{simulated_s:,.1f} s simulated, {speed:,.0f}x real time")
