"""When a study is to begin nothing more: a signal, the time that was given, or because it is told so."""
import signal
import time

from simulator.results.interrupts import Interrupts


class Watch:
    """Says when nothing is to begin any more.

    interrupts : to be entered while work goes on.

    Parameters
    ----------
    stop_after_s : of --stop-after; None: no time was given.
    """

    def __init__(self, stop_after_s: float | None):
        self.interrupts = Interrupts((signal.SIGINT, signal.SIGTERM))
        self._until_s = float("inf") if stop_after_s is None else time.monotonic() + stop_after_s
        self._has_stopped = False

    def stop(self) -> None:
        """Let nothing begin any more."""
        self._has_stopped = True

    def is_over(self) -> bool:
        """Say whether nothing is to begin any more."""
        return (self._has_stopped or self.interrupts.signal_number is not None
                or time.monotonic() > self._until_s)
