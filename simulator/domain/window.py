"""The stretch of a run that is measured."""
from typing import NamedTuple

import numpy as np


class Window(NamedTuple):
    """From one instant to another, in ns.

    An event at `begin_ns` happened before it, one at `end_ns` within it.
    """

    begin_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        """Duration of the window; 0: it is empty."""
        return self.end_ns - self.begin_ns

    def holds(self, times_ns: np.ndarray) -> np.ndarray:
        """Return which instants lie within the window, bool (n,)."""
        return (times_ns > self.begin_ns) & (times_ns <= self.end_ns)

    def clipped(self, times_ns: np.ndarray) -> np.ndarray:
        """Return the instants, those outside moved to its nearer end."""
        return np.clip(times_ns, self.begin_ns, self.end_ns)
