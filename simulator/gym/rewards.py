"""Rewards of an episode: requests within their bounds, cost, and fairness between tenants."""
from types import SimpleNamespace
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from simulator.config.experiment import Experiment
from simulator.domain import records
from simulator.domain.run import Run
from simulator.results.cluster import fairness
from simulator.results.paid_time import NS_PER_HOUR
from simulator.results.slo import verdicts_of
from simulator.results.uptime import PAID, time_in_ns
from simulator.workload.base import Workload

NO_ROWS = np.zeros(0, np.int64)
OFF = records.STAGE_NAMES.index("off")


class Rewards(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights of the parts of a reward.

    The reward of a step is the weighted sum of three differences since the last decision. From the begin of a run they
    add up to goodput x (good requests) - cost x (cost of the run) - fairness x (1 - Jain's index); the part before the
    first decision is in no reward. All requests count, also those of [workload.warmup], or outside of a window.
    """

    goodput: Annotated[float, Meta(description=(
        "reward of a request that completes within the bounds of [slo] and its class; without bounds: that completes"
    ))] = 1.0
    cost: Annotated[float, Meta(description=(
        "price of a unit of the cost of replicas, from the moment a replica is wanted until it is off"))] = 0.0
    fairness: Annotated[float, Meta(description=(
        "reward of a rise of Jain's index of the tenants' output tokens by 1"))] = 0.0


class Gains(NamedTuple):
    """Totals of an episode so far, or of a run.

    good : requests that completed within their bounds. cost : of the replicas, in the currency of the experiment.
    fairness : Jain's index of the tenants' output tokens; 1 without tenants.
    """

    good: int = 0
    cost: float = 0.0
    fairness: float = 1.0

    def reward_since(self, before: "Gains", weights: Rewards) -> float:
        """Return the reward of the gains since earlier totals."""
        return (weights.goodput * (self.good - before.good) - weights.cost * (self.cost - before.cost)
                + weights.fairness * (self.fairness - before.fairness))


def hourly_costs(experiment: Experiment) -> np.ndarray:
    """Return the cost per hour of each place of a replica, float64."""
    pools = experiment.all_pools()
    return np.concatenate([np.full(pool.places, getattr(pool, "cost_per_hour", 0.0) / pool.topology.data_parallel)
                           for pool in pools])


def gains_of(run: Run, experiment: Experiment) -> Gains:
    """Return the totals of a finished run, its window of measurement aside."""
    paid_ns = time_in_ns(_whole(run), PAID)
    cost = float((paid_ns * hourly_costs(experiment)[:len(paid_ns)]).sum()) / NS_PER_HOUR
    index = fairness(_whole(run), None)
    return Gains(int(verdicts_of(run, experiment.slo).good.sum()), cost, 1.0 if index is None else index)


def _whole(run: Run) -> Run:
    return run if run.window is None else msgspec.structs.replace(run, window=None)


class Ledger:
    """Totals of an episode while it runs.

    A replica is billed from one decision to the next by its stage at the first of both; the last reward of an episode
    settles the difference to the bill of the run, and to the good requests where clients send requests again.

    recorder : of the cluster. lifecycle : of its replicas; None: all are up all the time.
    """

    def __init__(self, experiment: Experiment, workload: Workload, recorder, lifecycle):
        self._experiment, self._workload, self._recorder = experiment, workload, recorder
        self._places = None if lifecycle is None else lifecycle.places
        self._hourly = hourly_costs(experiment)
        self._is_counted = np.zeros(len(workload), bool)
        arrival_ns = workload.requests["arrival_ns"].copy()
        is_known = workload.script is None and bool((np.diff(arrival_ns) >= 0).all())
        self._arrival_ns = arrival_ns if is_known else None     # None: clients send requests when others have ended
        self._first = self._now_ns = self._num_counted = 0
        self._tokens = np.zeros(int(workload.demands["tenant"].max(initial=-1)) + 1)
        self._rate = self._rate_now()
        self.gains = Gains()

    def upto(self, now_ns: int) -> np.ndarray:
        """Add all up to a decision; return the rows of requests that ended, in order."""
        cost = self.gains.cost + self._rate * (now_ns - self._now_ns) / NS_PER_HOUR
        rows = self._ended(now_ns)
        good, index = self.gains.good, self.gains.fairness
        if len(rows):
            requests, demands = self._workload.requests[rows], self._workload.demands[rows]
            shown = SimpleNamespace(requests=requests, demands=demands, labels=self._workload.labels)
            good += int(verdicts_of(SimpleNamespace(workload=shown), self._experiment.slo).good.sum())
            index = self._index_with(requests, demands["tenant"])
        self._now_ns, self._rate, self.gains = now_ns, self._rate_now(), Gains(good, cost, index)
        return rows

    def arrived(self, since_ns: int, now_ns: int) -> int:
        """Return how many requests arrived after an instant, up to another."""
        times_ns = self._workload.requests["arrival_ns"]
        has_come = records.has_come(self._workload.requests["status"])
        return int(((times_ns > since_ns) & (times_ns <= now_ns) & has_come).sum())

    def _rate_now(self) -> float:
        if self._places is None:
            return float(self._hourly.sum())
        return float(sum(cost for place, cost in zip(self._places, self._hourly, strict=True) if place.stage != OFF))

    def _ended(self, now_ns: int) -> np.ndarray:
        """Return the rows that have ended, and count them."""
        if self._recorder.finished == self._num_counted:
            return NO_ROWS
        first, known = self._first, self._arrival_ns
        end = len(self._is_counted) if known is None else int(known.searchsorted(now_ns, "right"))
        requests, is_counted = self._workload.requests[first:end], self._is_counted[first:end]
        found = ((requests["status"] > records.RUNNING) & ~is_counted).nonzero()[0]
        status = requests["status"][found]
        found = found[(status != records.NOT_SENT)
                      & ((status != records.COMPLETED) | (requests["completed_ns"][found] <= now_ns))]
        is_counted[found] = True
        self._num_counted += len(found)
        if len(is_counted) and is_counted[0]:
            self._first += len(is_counted) if is_counted.all() else int(is_counted.argmin())
        return first + found

    def _index_with(self, requests: np.ndarray, codes: np.ndarray) -> float:
        """Return Jain's index over all tenants of the workload, with further requests, as `cluster.fairness` does."""
        if not len(self._tokens):
            return 1.0
        served = (codes >= 0) & (requests["status"] == records.COMPLETED)
        self._tokens += np.bincount(codes[served], requests["output_tokens"][served], minlength=len(self._tokens))
        squares = float((self._tokens**2).sum())
        return float(self._tokens.sum())**2 / (len(self._tokens) * squares) if squares else 1.0
