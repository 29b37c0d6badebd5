"""The stop condition of a study: a signal, the end of the given time, or a call of `stop`."""
import signal
import time

from simulator.results.interrupts import Interrupts


class Watch:
    """Decides whether further runs may start.

    interrupts : context manager, entered while the study runs.

    Parameters
    ----------
    stop_after_s : of --stop-after; None: no time was given.
    """

    def __init__(self, stop_after_s: float | None):
        self.interrupts = Interrupts((signal.SIGINT, signal.SIGTERM))
        self._until_s = float("inf") if stop_after_s is None else time.monotonic() + stop_after_s
        self._has_stopped = False

    def stop(self) -> None:
        """Let no further run start."""
        self._has_stopped = True

    def is_over(self) -> bool:
        """Return whether no further run may start."""
        return (self._has_stopped or self.interrupts.signal_number is not None
                or time.monotonic() > self._until_s)
