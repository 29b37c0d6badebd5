"""Times of iterations, kept for runs of which only a part is measured: the part is known at the end of the run."""
import numpy as np

from simulator.domain.window import Window
from simulator.results.growing_table import GrowingTable

_ROW = np.dtype([("begin_ns", "i8"), ("end_ns", "i8"), ("replica", "i4"), ("stage", "i2"), ("decodes", "?"),
                 ("spare", "i1")])


class IterationLog:
    """Receives iterations from the engine, and keeps 24 bytes of each."""

    def __init__(self):
        self._table = GrowingTable(_ROW)
        self._lanes: list[Lane] | None = None

    def append(self, rows: np.ndarray) -> None:
        """Take rows of `records.ITERATION`; their memory may be used again."""
        kept = np.zeros(len(rows), _ROW)
        kept["begin_ns"], kept["end_ns"] = rows["begin_ns"], rows["begin_ns"] + rows["duration_ns"]
        kept["replica"], kept["stage"], kept["decodes"] = rows["replica"], rows["stage"], rows["decode_tokens"] > 0
        self._table.append(kept)
        self._lanes = None

    def by_replica(self) -> list["Lane"]:
        """Return the iterations of each replica that ran any, by number."""
        if self._lanes is None:
            rows = self._table.rows()
            rows = rows[np.argsort(rows["replica"], kind="stable")]
            borders = np.flatnonzero(np.diff(rows["replica"])) + 1
            self._lanes = [Lane(own) for own in (np.split(rows, borders) if len(rows) else ())]
        return self._lanes


class LogSink:
    """Receives the engine's calls of a run without tables; it fills a log.

    log : None: nothing is kept.
    """

    wants_tokens, streams = False, ()

    def __init__(self, log: IterationLog | None):
        self.wants_iterations, self.log = log is not None, log

    def iterations(self, rows: np.ndarray) -> None:
        """Take rows of `records.ITERATION`."""
        self.log.append(rows)


class Lane:
    """The iterations of one replica, in order.

    replica : its number. begin_ns, end_ns : of each, from its beginning in the first stage to its end in the last.
    decodes : bool, whether it computed decode tokens.
    """

    def __init__(self, rows: np.ndarray):
        last = rows[rows["stage"] == rows["stage"].max()]
        self.replica = int(rows["replica"][0])
        self.begin_ns = np.sort(rows["begin_ns"][rows["stage"] == 0])[:len(last)]
        order = np.argsort(last["end_ns"], kind="stable")
        self.end_ns, self.decodes = last["end_ns"][order], last["decodes"][order]

    def busy_ns(self, window: Window) -> int:
        """Return how long iterations ran within a window.

        Iterations of several stages overlap, and count once.
        """
        begin_ns, end_ns = window.clipped(self.begin_ns), window.clipped(self.end_ns)
        begin_ns[1:] = np.maximum(begin_ns[1:], end_ns[:-1])
        return int(np.maximum(end_ns - begin_ns, 0).sum())
