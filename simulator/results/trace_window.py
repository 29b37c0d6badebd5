"""The part of a run that trace.json shows, and notes on the rest."""
import numpy as np

from simulator.core.clock import ns_from_s, s_from_ns

FOR_ITERATIONS = 2              # iterations get one part in this many of the most events


class TraceWindow:
    """Choose iterations and requests, and count the others.

    Both must be given in the order in which they began. Where there are too many events the window ends with the first
    iteration that has no room, so that requests are shown as long as iterations are.

    Parameters
    ----------
    window_s : from and to; (): all.
    max_events : iterations have half of the number at most; 0: no limit.
    """

    def __init__(self, window_s: tuple[float, ...] = (), max_events: int = 0):
        self.begin_ns, self.end_ns = map(ns_from_s, window_s) if window_s else (0, np.iinfo(np.int64).max)
        self._window_s, self._max_events = window_s, max_events
        self._num_events = 0
        self._full_ns = None        # when the room ended
        self._outside = {"iteration": 0, "request": 0}      # left out, since no other part was requested
        self._too_many = dict(self._outside)                # left out for want of room

    def of_iterations(self, begin_ns: np.ndarray, num_events: np.ndarray) -> np.ndarray:
        """Return which of some more iterations are shown.

        Parameters
        ----------
        begin_ns, num_events : begin and number of events of each.
        """
        inside = (begin_ns >= self.begin_ns) & (begin_ns < self.end_ns)
        return self._fit("iteration", inside, begin_ns, num_events, self._max_events // FOR_ITERATIONS)

    def of_requests(self, begin_ns: np.ndarray, end_ns: np.ndarray, num_events: np.ndarray) -> np.ndarray:
        """Return which of some more requests are shown.

        They are requests in flight during the window, if only for a part of it.
        """
        inside = (end_ns >= self.begin_ns) & (begin_ns < self.end_ns)
        return self._fit("request", inside, begin_ns, num_events, self._max_events)

    def _fit(self, what, inside, begin_ns, num_events, most) -> np.ndarray:
        """Return which of the events inside have room, and note the end of the window."""
        self._outside[what] += int(len(inside) - inside.sum())
        fits = inside if self._full_ns is None else inside & (begin_ns < self._full_ns)
        ends = self._num_events + np.cumsum(np.where(fits, num_events, 0))
        if self._max_events and len(ends) and ends[-1] > most:
            self._full_ns = int(begin_ns[np.argmax(ends > most)])
            fits = fits & (ends <= most)
        self._too_many[what] += int((inside & ~fits).sum())
        self._num_events += int(num_events[fits].sum())
        return fits

    def has(self, time_ns: int) -> bool:
        """Return whether an instant is shown."""
        return self.begin_ns <= time_ns < self.end_ns and (self._full_ns is None or time_ns < self._full_ns)

    def notes(self) -> list[str]:
        """Return notes on omitted events; empty if all are shown."""
        notes = []
        if self._window_s and any(self._outside.values()):
            first_s, last_s = self._window_s
            notes.append(f"trace.json shows {first_s:g} to {last_s:g} s, as [output] chrome_trace_window_s says: "
                         f"{_counted(self._outside)} are outside")
        if any(self._too_many.values()):
            notes.append(f"trace.json ends at {s_from_ns(self._full_ns):g} s, since it has no more than "
                         f"{self._max_events:,} events ([output] chrome_trace_max_events): {_counted(self._too_many)} "
                         "are left out; chrome_trace_window_s chooses others")
        return notes


def _counted(numbers: dict[str, int]) -> str:
    return " and ".join(f"{number:,} {what}{'' if number == 1 else 's'}" for what, number in numbers.items())
