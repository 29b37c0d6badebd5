"""SIGINT and SIGTERM end a run early, with results; a second one ends it at once.

At once means: as soon as Python runs again, so that files are put in order. Where it does not within `GRACE_S`, since
compiled code never returns, the process still ends, with the same exit status.
"""
import signal
import threading
from collections.abc import Iterable

from simulator.core import forced_end

GRACE_S = 5                 # closing and removing written files, on a slow file system
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Aborted(KeyboardInterrupt):
    """A second signal, or one before there was anything to write.

    Parameters
    ----------
    signal_number : its number.
    """

    def __init__(self, signal_number: int):
        super().__init__(f"aborted by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number


class Interrupts:
    """Handle signals inside a `with` block; put the former handlers back after it.

    Outside the main thread, where Python cannot handle signals, and for signals that the process ignores, nothing
    changes.

    signal_number : the signal that requested the stop; None: none did.

    Parameters
    ----------
    signals : to handle; none: signals keep their usual effect.
    """

    def __init__(self, signals: Iterable[signal.Signals] = SIGNALS):
        self.signal_number: int | None = None
        self._signals = tuple(signals)
        self._previous = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                previous = signal.getsignal(number)
                if previous not in (signal.SIG_IGN, None):      # None: a handler that Python cannot put back
                    self._previous[number] = previous
                    signal.signal(number, self._handle)
        if self._previous:
            forced_end.arm([int(number) for number in self._previous], GRACE_S)
        return self

    def __exit__(self, *exception):
        if self._previous:
            forced_end.disarm()
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _handle(self, number: int, frame) -> None:
        if self.signal_number is not None:
            raise Aborted(int(number))      # each time: Python drops exceptions raised while a destructor runs
        self.signal_number = int(number)
