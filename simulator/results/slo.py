"""Latencies of requests, and whether requests keep the service level objectives of their class."""
from typing import NamedTuple

import numpy as np

from simulator.domain import records, slo_classes
from simulator.domain.run import Run


def completed_of(requests: np.ndarray) -> np.ndarray:
    """Return the completed requests."""
    return only(requests, requests["status"] == records.COMPLETED)


LEAST_TOKENS = {"ttft_ms": 1, "tpot_ms": 2}     # of output; a request with fewer has no such latency


def latencies_ms(key: str, completed: np.ndarray) -> np.ndarray:
    """Return one latency, by its key in summary.json, of the requests that have it."""
    return MEASURES[key](only(completed, completed["output_tokens"] >= LEAST_TOKENS.get(key, 0)))


def ttft_ms(requests: np.ndarray) -> np.ndarray:
    """Return arrival to first observed token; all requests must have one."""
    return (requests["first_token_ns"] - requests["arrival_ns"]) / 1e6


def e2el_ms(completed: np.ndarray) -> np.ndarray:
    """Return arrival to last observed token of completed requests."""
    return (completed["completed_ns"] - completed["arrival_ns"]) / 1e6


def tpot_ms(completed: np.ndarray) -> np.ndarray:
    """Return (E2EL - TTFT) / (output tokens - 1) of completed requests.

    It is 0 where there is one token or none.
    """
    decode_ms = (completed["completed_ns"] - completed["first_token_ns"]) / 1e6
    later_tokens = completed["output_tokens"] - 1
    return np.divide(decode_ms, later_tokens, out=np.zeros(len(decode_ms)), where=later_tokens > 0)


def queue_ms(scheduled: np.ndarray) -> np.ndarray:
    """Return the time from waiting queue to first scheduled; all have arrived."""
    return (scheduled["scheduled_ns"] - scheduled["enqueued_ns"]) / 1e6


BOUNDS = ("ttft_ms", "tpot_ms", "e2el_ms")      # latencies that [slo] bounds
MEASURES = {"ttft_ms": ttft_ms, "tpot_ms": tpot_ms, "e2el_ms": e2el_ms, "queue_ms": queue_ms}


def any_given(bounds) -> bool:
    """Say whether there is a service level objective at all."""
    return any(getattr(bounds, key) is not None for key in BOUNDS)


def meets(completed: np.ndarray, bounds) -> np.ndarray:
    """Return for each completed request whether every given bound holds.

    A value equal to its bound is still good. A bound on a latency that a request does not have, for it has too few
    output tokens, holds.
    """
    good = np.ones(len(completed), bool)
    for key in BOUNDS:
        if (bound := getattr(bounds, key)) is not None:
            good &= (MEASURES[key](completed) <= bound) | (completed["output_tokens"] < LEAST_TOKENS.get(key, 0))
    return good


class Verdicts(NamedTuple):
    """Masks of the requests that keep the service level objectives of their class."""

    is_asked: bool          # [slo] has a bound
    asked: np.ndarray       # bool (n,): there is a bound for the request
    good: np.ndarray        # bool (n,): it completed within its bounds

    def num_good(self, rows=slice(None)) -> int | None:
        """Count the good requests among `rows`; None where none has a bound."""
        asked = self.asked[rows]
        return int(self.good[rows].sum()) if (asked.any() if len(asked) else self.is_asked) else None

    def of(self, rows) -> "Verdicts":
        """Return the verdicts on some requests."""
        return Verdicts(self.is_asked, self.asked[rows], self.good[rows])


def verdicts_of(run: Run, bounds) -> Verdicts:
    """Return the verdict on the service level objectives of each request.

    A request keeps the bounds of its SLO class, and those of [slo] where the class gives none. One of a class without
    any is good once it has completed.
    """
    requests, codes = run.workload.requests, run.workload.demands["slo_class"]
    good = requests["status"] == records.COMPLETED
    asked = np.zeros(len(requests), bool)
    classes = slo_classes.by_name(bounds.classes)
    names = (None, *run.workload.labels.get("slo_class", ()))
    by_code = [slo_classes.bounds_of(slo_classes.class_of(name, classes), bounds) for name in names]
    distinct = list(dict.fromkeys(by_code))
    group_of = np.array([distinct.index(each) for each in by_code])
    for group, own in enumerate(distinct):
        if any_given(own):
            chosen = np.ones(len(requests), bool) if len(distinct) == 1 else group_of[codes + 1] == group
            asked |= chosen
            completed = chosen & good
            good[completed] = meets(only(requests, completed), own)
    return Verdicts(any_given(bounds), asked, good)


def only(requests: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the chosen requests, without a copy where all are chosen."""
    return requests if chosen.all() else requests[chosen]
