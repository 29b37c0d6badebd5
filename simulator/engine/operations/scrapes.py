"""Monitoring of a group of replicas: scrapes of their reports, and times to first token."""
from collections import deque
from typing import NamedTuple

import numpy as np

from simulator.domain import records
from simulator.domain.autoscaling import Metrics
from simulator.scaling.base import Sample

# Fields that are not totals since the start, times or constants of a replica.
GAUGES = ("waiting_prefill_tokens", "running_prefill_tokens", "unallocated_prefill_tokens", "waiting_tokens",
          "running_tokens", "loading_tokens", "cache_hit_rate", "waiting", "running", "loading", "used_blocks")
IN_FLIGHT = ("in_flight_tokens", "expected_tokens", "in_flight")
STATE, ACCOUNT = (np.dtype([(name, "f8") for name in dtype.names if name != "spare"])
                  for dtype in (records.REPLICA_STATE, records.REPLICA_ACCOUNT))
REDUCE = {"mean": np.mean, "max": np.max}


class Reading(NamedTuple):
    """A replica in one scrape: its time, state and account."""

    time_ns: int
    state: np.ndarray
    account: np.ndarray


class Scrapes:
    """The last scrapes of a group of replicas, and samples of their requests.

    metrics : settings. keeps_ns : span of the samples.
    """

    def __init__(self, metrics: Metrics, keeps_ns: int):
        self._aggregate = metrics.aggregate
        self._window_ns, self._staleness_ns = round(metrics.window_s * 1e9), round(metrics.staleness_s * 1e9)
        self._readings: dict[int, deque[Reading]] = {}      # by replica
        self._queued: deque[tuple[int, int]] = deque()      # time, requests at the gateway
        self.samples = Samples(keeps_ns)

    def add(self, now_ns: int, queued: int, replicas: list[int], states: np.ndarray, accounts: np.ndarray) -> None:
        """Note a scrape.

        queued : requests at the gateway. states, accounts : in the order of `replicas`.
        """
        for replica, state, account in zip(replicas, as_floats(states, STATE), as_floats(accounts, ACCOUNT),
                                           strict=True):
            self._readings.setdefault(replica, deque()).append(Reading(now_ns, state, account))
        self._queued.append((now_ns, queued))
        self.samples.add(now_ns, queued + int(accounts["in_flight"].sum()))

    def forget(self, replica: int) -> None:
        """Forget a replica that is off."""
        self._readings.pop(replica, None)

    def queued(self, now_ns: int) -> float:
        """Return the requests at the gateway."""
        while self._queued and self._queued[0][0] <= now_ns - max(self._window_ns, self._staleness_ns):
            self._queued.popleft()
        if self._aggregate == "last":
            return float(self._queued[-1][1]) if self._queued else 0.0
        found = [queued for time_ns, queued in self._queued if time_ns > now_ns - self._window_ns]
        return float(REDUCE[self._aggregate](found)) if found else 0.0

    def seen(self, now_ns: int, replicas: list[int], states: np.ndarray,
             accounts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return states and accounts as monitoring has them, and whether it has any.

        states, accounts : of the present, for the constants of the replicas, and for replicas without a report.
        """
        states, accounts = as_floats(states, STATE), as_floats(accounts, ACCOUNT)
        is_known = np.zeros(len(replicas), bool)
        for i, replica in enumerate(replicas):
            found = self._of(replica, now_ns)
            is_known[i] = bool(found)
            for rows, names, part in ((states, GAUGES, "state"), (accounts, IN_FLIGHT, "account")):
                if found:
                    rows[i] = getattr(found[-1], part)
                for name in names if len(found) != 1 else ():
                    rows[name][i] = self._reduced([getattr(reading, part)[name] for reading in found])
        return states, accounts, is_known

    def _of(self, replica, now_ns):
        """Return the readings of a replica that count, oldest first."""
        readings = self._readings.get(replica, ())
        while readings and readings[0].time_ns <= now_ns - max(self._window_ns, self._staleness_ns):
            readings.popleft()
        if self._aggregate == "last":
            return [reading for reading in readings if reading.time_ns > now_ns - self._staleness_ns][-1:]
        return [reading for reading in readings if reading.time_ns > now_ns - self._window_ns]

    def _reduced(self, values):
        """Return the aggregate of several values, or of none."""
        return float(REDUCE[self._aggregate](values)) if values else 0.0


class Samples:
    """The requests of a model at the times of a span that ends now.

    keeps_ns : length of the span; 0: nothing is kept.
    """

    def __init__(self, keeps_ns: int):
        self._keeps_ns = keeps_ns
        self._samples: deque[Sample] = deque()

    def add(self, now_ns: int, requests: int) -> None:
        """Note the requests at a time, the latest so far."""
        if self._keeps_ns:
            self._samples.append(Sample(now_ns, float(requests)))

    def at(self, now_ns: int) -> tuple[Sample, ...]:
        """Return the samples of the span that ends at a time; it is open at its begin."""
        while self._samples and self._samples[0].time_ns <= now_ns - self._keeps_ns:
            self._samples.popleft()
        return tuple(self._samples)


class FirstTokens:
    """Times to first token of the requests of a workload, by when they had it.

    requests : structured array (requests,), `records.REQUEST`, of the clients. window_ns : 0: each is returned once.
    """

    def __init__(self, requests: np.ndarray, window_ns: int):
        self._requests, self._window_ns = requests, window_ns
        self._without = np.arange(len(requests))        # rows that have no first token yet
        self._found: deque[tuple[int, np.ndarray]] = deque()    # time of a look, rows

    def look(self, now_ns: int) -> None:
        """Find the requests that had their first token since the last look."""
        times_ns = self._requests["first_token_ns"][self._without]
        has = (times_ns >= 0) & (times_ns <= now_ns)
        self._found.append((now_ns, self._without[has]))
        self._without = self._without[~has & (self._requests["status"][self._without] <= records.RUNNING)]

    def rows(self, now_ns: int) -> np.ndarray:
        """Return the rows of the requests that count."""
        if self._window_ns:
            while self._found and self._found[0][0] <= now_ns - self._window_ns:
                self._found.popleft()
        rows = np.concatenate([rows for _, rows in self._found]) if self._found else np.zeros(0, int)
        if not self._window_ns:
            self._found.clear()
        return rows


def as_floats(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return a structured array with all its fields as doubles, so that means fit."""
    return rows[list(dtype.names)].astype(dtype)
