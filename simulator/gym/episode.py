"""One run of an experiment with an agent's decisions."""
from collections.abc import Mapping
from typing import Any

import numpy as np

from simulator.api import Order, is_uncertain, run_ordered
from simulator.assembly import assemble
from simulator.config.experiment import Experiment
from simulator.config.load import load_experiment
from simulator.domain.run import Run
from simulator.errors import InputErrors
from simulator.gym.deciding import Decision
from simulator.gym.rewards import Gains, Ledger, gains_of
from simulator.gym.turns import turns_of
from simulator.latency.readings import Readings
from simulator.results.result import Result
from simulator.workload.base import Workload

ROUTER, ADMISSION, SCALING = "router", "admission", "scaling"
_ASKED = {
    ROUTER: {"cluster.routing.policy": "simulator.gym.deciding:AskedRouter", "cluster.routing.scorers": [],
             "cluster.routing.filters": []},
    ADMISSION: {"cluster.admission.policy": "simulator.gym.deciding:AskedAdmission"},
    SCALING: {"autoscaling.policy": "simulator.gym.deciding:AskedAutoscaler"},
}
_CACHES = {"cluster.routing.policy": "simulator.gym.deciding:CacheAskedRouter"}


def asked(kind: str, file: Any, overrides: Mapping[str, Any] | None = None, sees_caches: bool = False) -> Experiment:
    """Return an experiment with an agent for its decisions of one kind.

    Raises
    ------
    InputErrors
        Faults of the experiment; several models or parts of requests, each of which has a gateway of its own; a run
        that is repeated.
    """
    mine = _ASKED[kind] | (_CACHES if sees_caches else {})
    experiment = load_experiment(file, {**(overrides or {}), **mine}, "simulator.gym")
    pools, faults = experiment.all_pools(), []
    models = {getattr(pool, "serves", None) for pool in pools}
    if len(models) > 1:
        faults.append(f"pools.serves: an environment decides for one model, found {len(models)}")
    if kind != SCALING and any(pool.role in ("prefill", "decode") for pool in pools):
        faults.append(f"pools.role: the {kind} of an environment decides on whole requests, found prefill or decode")
    if is_uncertain(experiment):
        faults.append("latency.uncertainty: an environment runs an experiment once; found true, allowed: false")
    if faults:
        raise InputErrors([f"{file}: {fault}" for fault in faults])
    return experiment


class Watched:
    """Builds a cluster for `api`, and keeps the Run that it gives.

    cluster : that was built; None before, and after the run. finished : the Run; None before it has ended.
    """

    def __init__(self):
        self.cluster = None
        self.finished: Run | None = None

    def build(self, prepared: assemble.Prepared, sink, monitor, threads: int) -> "Watched":
        """Build the cluster as `assemble.build` does."""
        self.cluster = assemble.build(prepared, sink, monitor, threads)
        return self

    def run(self) -> Run:
        """Run the cluster."""
        cluster, self.cluster = self.cluster, None
        self.finished = cluster.run()
        return self.finished


class Episode:
    """One run, decision by decision.

    decision : that the engine waits for; None: the run has ended.
    gains : totals so far.
    ended : rows of the requests that ended since the last decision.
    result : of the run, once it has ended; None before.
    """

    def __init__(self, experiment: Experiment, readings: Readings | None = None):
        self.experiment = experiment
        self.workload: Workload | None = None
        self.decision: Decision | None = None
        self.gains, self.ended = Gains(), np.zeros(0, np.int64)
        self.result: Result | None = None
        self._readings = readings
        self._ledger: Ledger | None = None
        self._watched = Watched()
        self._turns = turns_of(self._work)

    def begin(self) -> None:
        """Run up to the first decision."""
        self._reach(self._turns.begin())

    def answer(self, action: Any) -> None:
        """Act, and run up to the next decision."""
        self._reach(self._turns.answer(action))

    def leave(self) -> None:
        """End the run before its end."""
        self._turns.leave()

    def arrived(self, since_ns: int) -> int:
        """Return how many requests arrived after an instant, up to the decision."""
        return self._ledger.arrived(since_ns, self.decision.now_ns)

    def _reach(self, decision: Decision | None) -> None:
        self.decision = decision
        if decision is None:
            finished = self._watched.finished
            self.ended = self._ledger.upto(int(finished.clock_ns))
            self.gains = gains_of(finished, self.experiment)
            return
        if self._ledger is None:
            self.leave()
            raise InputErrors([f"{self.experiment.name}: workload.load: how many requests it sends is known only after "
                               "a run; an environment needs their number, give num_requests"])
        self.ended = self._ledger.upto(decision.now_ns)
        self.gains = self._ledger.gains

    def _work(self) -> None:
        order = Order(self.experiment, None, False, True, threads=1, readings=self._readings, build=self._build)
        self.result = run_ordered(order)

    def _build(self, prepared: assemble.Prepared, sink, monitor, threads: int) -> Watched:
        self.workload = prepared.workload
        watched = self._watched.build(prepared, sink, monitor, threads)
        lifecycles = [each.lifecycle for each in watched.cluster.operations if hasattr(each, "lifecycle")]
        self._ledger = Ledger(self.experiment, self.workload, watched.cluster.fleet.recorder,
                              lifecycles[0] if lifecycles else None)
        return watched
