"""Iterations lane by lane: what each replica did at which time."""
from collections.abc import Mapping
from functools import cached_property

import numpy as np

COLUMNS = ("replica", "stage", "start_ns", "duration_ns", "begin_ns", "sequences", "prefill_tokens", "decode_tokens",
           "waiting", "running", "used_blocks")         # of /iterations, that are looked at


class Lanes:
    """Iterations of the first pipeline stage, grouped by replica, in order of time.

    begin_ns, duration_ns, end_ns : int64 (m,)
    bounds : int64 (replicas + 1,): rows of replica i are bounds[i]:bounds[i + 1].

    Parameters
    ----------
    iterations : the table /iterations, or `COLUMNS` of it by name.
    replicas : the table /replicas.
    """

    def __init__(self, iterations: np.ndarray | Mapping[str, np.ndarray], replicas: np.ndarray):
        self.replicas = replicas
        self._table = iterations if isinstance(iterations, np.ndarray) else dict(iterations)
        self._columns: dict[str, np.ndarray] = {}
        chosen = None if not iterations["stage"].any() else np.flatnonzero(iterations["stage"] == 0)
        lane = iterations["replica"] if chosen is None else iterations["replica"][chosen]
        order = np.argsort(lane.astype(np.uint16) if len(replicas) < 1 << 16 else lane, kind="stable")
        self._chosen, self._places = chosen, order
        self._order = order if chosen is None else chosen[order]
        counts = np.bincount(lane, minlength=len(replicas))
        self.bounds = np.concatenate(([0], np.cumsum(counts)))
        self.begin_ns, self.duration_ns = self.column("begin_ns"), self.column("duration_ns")
        self.end_ns = self.begin_ns + self.duration_ns
        self._span_ns = (int(self.begin_ns.min()), int(self.end_ns.max())) if len(self.begin_ns) else (0, 0)

    def __len__(self):
        return len(self.begin_ns)

    def column(self, name: str) -> np.ndarray:
        """Return a column of the iterations, replica by replica."""
        if name not in self._columns:       # rows are dear to choose from: 60 ms for 2.8 million
            self._columns[name] = self._table[name][self._order]
            if isinstance(self._table, dict) and name != "start_ns":
                del self._table[name]       # one copy of a column is enough; of start_ns both orders are needed
        return self._columns[name]

    @cached_property
    def batch_tokens(self) -> np.ndarray:
        """Tokens of prompts and decodes of each row, int64."""
        return self.column("prefill_tokens").astype(np.int64) + self.column("decode_tokens")

    @cached_property
    def by_batch_tokens(self) -> np.ndarray:
        """Rows in the order of their tokens: (m,)."""
        tokens = self.batch_tokens
        small = tokens.max(initial=0) < 1 << 16             # a radix sort
        return np.argsort(tokens.astype(np.uint16) if small else tokens, kind="stable")

    @cached_property
    def capacity(self) -> np.ndarray:
        """KV blocks of the replica of each row."""
        return np.repeat(self.replicas["num_blocks"], np.diff(self.bounds))

    @property
    def end_of_all_ns(self) -> int:
        """When the last iteration ended; 0 without iterations."""
        return self._span_ns[1]

    @cached_property
    def _fades(self) -> np.ndarray:
        """Rows after which the replica does nothing: the next iteration begins later than the row's end, or never."""
        is_last = np.ones(len(self), bool)
        is_last[:-1] = self.begin_ns[1:] > self.end_ns[:-1]
        last = self.bounds[1:] - 1
        is_last[last[np.diff(self.bounds) > 0]] = True
        return np.flatnonzero(is_last)

    @cached_property
    def _starts_ns(self) -> np.ndarray:
        """When each row of the table was scheduled: what it counts holds from then on; it is in order of this."""
        starts_ns = self._table["start_ns"]
        return starts_ns if self._chosen is None else starts_ns[self._chosen]

    @cached_property
    def _order_of_events(self) -> np.ndarray:
        return np.argsort(np.concatenate((self._starts_ns, np.sort(self.end_ns[self._fades]))), kind="stable")

    @cached_property
    def _rows_of_events(self) -> np.ndarray:
        """Which row of the lanes begins at each event; behind them: which of the fades ends there."""
        rows = np.empty(len(self) + len(self._fades), np.int64)
        rows[self._places] = np.arange(len(self))
        rows[len(self):] = len(self) + np.argsort(self.end_ns[self._fades], kind="stable")
        return rows[self._order_of_events]

    @cached_property
    def event_times_s(self) -> np.ndarray:
        """When iterations are scheduled or replicas fall idle; float64, rising."""
        ends_ns = np.sort(self.end_ns[self._fades])
        return np.concatenate((self._starts_ns, ends_ns))[self._order_of_events] / 1e9

    def total(self, name: str) -> np.ndarray:
        """Return a column summed over replicas, at each of `event_times_s`.

        A replica that does nothing counts 0.
        """
        values = self.column(name)
        most = int(values.max(initial=0)) * len(self.replicas)
        kind = np.int32 if most < 1 << 31 else np.int64             # half the memory, the same numbers
        steps = np.empty(len(values) + len(self._fades), kind)
        np.subtract(values[1:], values[:-1], out=steps[1:len(values)], dtype=kind)
        begins = np.concatenate(([0], self._fades + 1))[:-1]        # the first row, and those behind idle times
        steps[begins] = values[begins]
        steps[len(values):] = -values[self._fades].astype(kind)
        changes = steps[self._rows_of_events]
        return np.cumsum(changes, out=changes)

    def means(self, edges_ns: np.ndarray, values: np.ndarray | None = None) -> np.ndarray:
        """Return the mean of a value over each bin, replica by replica: (replicas, bins).

        Time in which nothing runs counts as 0.

        Parameters
        ----------
        edges_ns : int64 (bins + 1,), rising.
        values : (m,), while the row's iteration runs; None: 1, so that the mean is the busy share.
        """
        means = np.zeros((len(self.replicas), len(edges_ns) - 1))
        for row, (first, last) in enumerate(zip(self.bounds[:-1], self.bounds[1:], strict=True)):
            if last > first:
                duration_ns = self.duration_ns[first:last].astype(np.float64)
                weight = duration_ns if values is None else duration_ns * values[first:last]
                until = np.concatenate(([0.0], np.cumsum(weight)))
                begin_ns = self.begin_ns[first:last]
                at = np.maximum(np.searchsorted(begin_ns, edges_ns, "right") - 1, 0)
                done = np.clip((edges_ns - begin_ns[at]) / np.maximum(duration_ns[at], 1), 0, 1)
                means[row] = np.diff(until[at] + done * weight[at]) / np.diff(edges_ns)
        return means
