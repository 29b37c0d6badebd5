"""A data set simulated: its requests, each at its time of sending."""
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from simulator import api
from simulator.assembly.latency import Readings
from simulator.assembly.requests import requests_of
from simulator.domain import records
from simulator.errors import InputErrors
from simulator.study.accuracy.predict import times_of_requests
from simulator.study.calibration.data import METRICS
from simulator.study.calibration.question import DataSet

MOST_UNCOMPARED = 0.05       # share of requests that cannot be compared, at most


class Counts(NamedTuple):
    """Outcomes of the requests of data sets.

    measured : rows of observed.csv. failed : not answered by the server. unmatched : without a simulated end.
    mismatched_tokens : answered with another number of tokens than simulated.
    """

    measured: int = 0
    matched: int = 0
    failed: int = 0
    unmatched: int = 0
    mismatched_tokens: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


class Replayed(NamedTuple):
    """The requests of a data set, simulated, in their order.

    times : metric -> float64 (n,), ms; NaN: none.
    """

    times: dict[str, np.ndarray]
    counts: Counts


class Replay:
    """Simulates a data set with different values.

    notes : remarks on its requests, a sentence each.

    Parameters
    ----------
    rtt_ms : round trip between client and server; TTFT and E2EL are longer by it.
    """

    def __init__(self, data_set: DataSet, rtt_ms: float, readings: Readings):
        self.data_set = data_set
        self._rtt_ms, self._readings = rtt_ms, readings
        self._workload = requests_of(data_set.experiment_of({}))
        row_of = {id: row for row, id in enumerate(map(str, self._workload.request_ids))}
        self.notes = self._workload.notes
        self._rows = np.array([row_of.get(id, -1) for id in data_set.requests.ids])

    def __call__(self, assignment: Mapping[str, Any]) -> Replayed:
        """Return the times under keys laid over the experiment.

        Raises
        ------
        InputErrors
            The data set cannot be simulated, with the reason.
        """
        order = api.Order(self.data_set.experiment_of(assignment), None, False, True, self._workload.untouched(),
                          threads=1, readings=self._readings)
        requests = api.run_ordered(order).requests
        is_there = (self._rows >= 0) & (requests["status"][self._rows] == records.COMPLETED)
        times = {name: np.where(is_there, values[self._rows], np.nan)
                 for name, values in times_of_requests(requests).items()}
        for name in ("ttft", "e2e"):
            times[name] = times[name] + self._rtt_ms
        measured = self.data_set.requests
        differs = is_there & (requests["output_tokens"][self._rows] != measured.output_tokens)
        return Replayed(times, Counts(
            len(measured.ids) + measured.num_failed, int((is_there & ~differs).sum()), measured.num_failed,
            int((~is_there).sum()), int(differs.sum())))


def check_counts(data_set: DataSet, counts: Counts) -> None:
    """Make sure that most requests can be compared.

    Raises
    ------
    InputErrors
        More than 5 % of the answered requests have no simulated end, or another number of tokens.
    """
    uncompared = counts.unmatched + counts.mismatched_tokens
    if uncompared > MOST_UNCOMPARED * (counts.measured - counts.failed):
        raise InputErrors([
            f"{data_set.requests.path}: {uncompared} of {counts.measured - counts.failed} requests cannot be compared, "
            f"more than {MOST_UNCOMPARED:.0%}: {counts.unmatched} did not complete when simulated, "
            f"{counts.mismatched_tokens} have other output tokens; is the experiment that of this server?"])


def compared(data_set: DataSet, replayed: Replayed, chosen: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return measured and simulated times of chosen requests, by metric."""
    return {name: (data_set.requests.times[name][chosen], replayed.times[name][chosen]) for name in METRICS}
