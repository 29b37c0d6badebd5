"""Run a scenario on replicas that fail, come and go."""
from collections import Counter
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from simulator.domain import records
from simulator.domain.failures import Failure, Health
from simulator.engine.build import build
from simulator.engine.operations.upkeep import Upkeep
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import Hooks
from simulator.latency.linear import Linear
from simulator.results.journeys import retries_of
from support.engine import plan_of

MS = 1_000_000      # ns


def failure_of(**keys):
    """Return a Failure with those of the keys that its kind and its fate of requests leave an effect."""
    without = {"on_failure", "max_retries"} if keys["kind"] == "slow" else {"slow_factor"}
    if keys.get("on_failure") == "lost":
        without.add("max_retries")
    return Failure(**{key: value for key, value in keys.items() if key not in without})


@dataclass
class Outcome:
    """What a run came to.

    requests, journeys, replicas, iterations, lifecycle, legs : structured arrays.
    retries : as `retries_of` gives them. diagnosis : as `Run` has it.
    token_times : {row: [ns]}, all that were streamed.
    gaps : {ms: how many tokens came so long after the one before}.
    cluster : for its replicas.
    """

    requests: Any
    journeys: Any
    replicas: Any
    iterations: Any
    lifecycle: Any
    legs: Any
    retries: dict
    diagnosis: list
    token_times: dict
    gaps: dict
    cluster: Any

    def times_ms(self, row):
        """Return when the tokens of a request were streamed."""
        return [time_ns / MS for time_ns in self.token_times.get(row, [])]

    def changes(self, replica):
        """Return [(ms, state, cause)] of a replica, without the state it had at first."""
        rows = [row for row in self.lifecycle if row["replica"] == replica]
        return [(row["time_ns"] / MS, records.STAGE_NAMES[row["state"]], records.LIFECYCLE_CAUSES[row["cause"]])
                for row in rows if row["cause"] > 0]


class _Sink:
    def __init__(self):
        self.iteration_rows, self.token_times = [], {}

    def iterations(self, rows):
        self.iteration_rows += rows.tolist()

    def tokens(self, rows):
        for row in rows:
            self.token_times.setdefault(int(row["request"]), []).extend([int(row["time_ns"])] * int(row["tokens"]))


def run(scenario, *, failures=(), health=None, autoscaling=None, autoscaler=None, layers=None, pools=None,
        observer=None, resolution_us=0.0, weight_bytes=None, **setup):
    """Return the Outcome of a `Scenario`; `setup`: fields of Pool and ClusterPlan, and what `Upkeep.guard` takes.

    layers : of each pipeline stage; None: one stage. pools : fields of each pool in which it differs from the others.
    observer : sees every batch, with the `cluster` that it is given. resolution_us : of iterations.
    weight_bytes : that a new replica of each pool reads.
    """
    latency = Linear(scenario.prices)
    latency.set_host(scenario.host.iteration_us, resolution_us)
    if layers is not None:
        latency.set_stages(layers)
    workload = replace(scenario.workload, requests=scenario.workload.requests.copy())
    guards = {name: setup.pop(name) for name in ("cooldown", "breaker", "retry") if name in setup}

    def upkeep(*cluster):
        made = Upkeep(*cluster, failures=failures, health=health or Health(), autoscaling=autoscaling,
                      autoscaler=autoscaler)
        made.guard(**guards)
        if weight_bytes is not None:
            made.read_weights(weight_bytes)
        return made

    plan = plan_of(scenario.parameters, latency, host=scenario.host, tier=scenario.tier, operations=(upkeep,),
                   keeps_journeys=True, keeps_legs=True, **(scenario.cache | setup))
    if pools is not None:
        plan = replace(plan, pools=tuple(replace(plan.pools[0], **fields) for fields in pools))
    sink = _Sink()
    cluster = build(workload, plan, Hooks(recorder=Recorder(sink, iterations=True, tokens=True), observer=observer))
    if observer is not None:
        observer.cluster = cluster
    finished = cluster.run()
    gaps = Counter()
    for gap_ns, count in zip(*(part.tolist() for part in finished.itl_ns.pairs()), strict=True):
        gaps[gap_ns / MS] += count
    return Outcome(workload.requests, finished.journeys, finished.replicas, sink.iteration_rows, finished.lifecycle,
                   finished.legs, retries_of(finished), finished.diagnosis, sink.token_times, dict(gaps), cluster)
