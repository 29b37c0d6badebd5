"""What holds in every run with failures and autoscaling, whatever goes wrong when."""
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.domain import records
from simulator.domain.autoscaling import Autoscaling, Delay
from simulator.domain.failures import Failure, Health
from simulator.engine.plan import GatewayPlan
from simulator.routing.policies.least_loaded import LeastLoaded
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from simulator.scaling.queue import Queue, QueueParameters
from support import upkeep
from support.random_scenarios import random_description
from support.scenario import load

FINAL = records.COMPLETED
EARLY_DELAY = Delay(mean_s=0.01, law="exponential")


def random_failures(rng):
    failures = []
    for _ in range(rng.randint(1, 4)):
        failure = {"kind": rng.choice(["stop", "stop", "slow", "link"]), "on_failure": rng.choice(
            ["retry", "retry", "restart", "lost"]), "max_retries": rng.choice([0, 1, 3, 100]),
            "slow_factor": rng.choice([0.5, 1.5, 3.0]), "target": rng.choice(["replica", "replica", "node", "unit"]),
            "which": rng.choice(["any", "each", 0])}
        if rng.random() < 0.4:
            failure["at_s"] = round(rng.choice([0.0, 0.01, 0.05, 0.2]) + rng.choice([0.0, 0.0013]), 6)
        else:
            failure |= {"mtbf_s": rng.choice([0.02, 0.1, 0.5]), "mtbf_law": rng.choice(["exponential", "weibull"])}
        lasting = rng.random()
        if lasting < 0.45:
            failure["duration_s"] = rng.choice([0.001, 0.02, 0.1])
        elif lasting < 0.9:
            failure |= {"mttr_s": rng.choice([0.005, 0.05]), "mttr_law": "exponential"}
        failures.append(upkeep.failure_of(**failure))
    return failures


def scene(seed):
    """Return what `upkeep.run` takes for a random scenario in which much goes wrong."""
    rng = Random(seed)
    description = random_description(seed, beyond_vllm=True)
    layers = None
    if rng.random() < 0.2:
        description["options"]["async_scheduling"] &= description["options"]["vllm_version"] != "0.10"
        layers = rng.choice([(1, 1), (2, 1, 1)])
    front = GatewayPlan(LeastLoaded, LeastLoaded.Parameters()) if rng.random() < 0.5 else GatewayPlan(
        RoundRobin, RoundRobinParameters())
    options = {"failures": random_failures(rng), "layers": layers, "front": front, "seed": seed,
               "replicas": rng.randint(1, 4), "replicas_per_node": rng.choice([1, 2]), "nodes_per_unit": 2,
               "health": Health(check_interval_s=rng.choice([0.0, 0.01]), reopening_delay_s=rng.choice([0.0, 0.02]),
                                detection_delay_s=rng.choice([0.0, 0.004, 0.05]))}
    if rng.random() < 0.4:
        options |= {"autoscaler": Queue, "max_replicas": 5, "autoscaling": Autoscaling(
            policy="queue", interval_s=0.03, actuation_delay=Delay(), provisioning_delay=EARLY_DELAY,
            loading_delay=Delay(mean_s=0.02), warm_up_delay=Delay(),
            parameters=QueueParameters(target_waiting=1.0), drains=rng.choice(["newest", "oldest", "least_loaded"]))}
    return load(description), options


class Watch:
    """Observer that finds a request on two replicas, or on one that its record does not name."""

    def __init__(self):
        self.cluster = None

    def scheduled(self, replica):
        requests = self.cluster.workload.requests
        seen = set()
        for each in self.cluster.replicas:
            rows = each.scheduler.running_rows() + each.scheduler.waiting.rows()
            assert len(rows) == len(set(rows))
            assert not seen & set(rows)
            assert all(requests["replica"][row] == each.index for row in rows)
            seen |= set(rows)

    def ended(self, replica):
        replica.check()


def held(outcome):
    """Return the rows that are still on replicas."""
    return [row for replica in outcome.cluster.replicas
            for row in replica.scheduler.running_rows() + replica.scheduler.waiting.rows()]


seeds = given(seed=st.integers(0, 2**32))


@seeds
@settings(max_examples=150)
def test_every_request_is_accounted_for(seed):
    outcome = upkeep.run(scene(seed)[0], **scene(seed)[1])
    requests, journeys = outcome.requests, outcome.journeys
    unfinished = np.flatnonzero((requests["status"] < FINAL) & (requests["status"] > records.PENDING))
    assert sorted(held(outcome)) == unfinished.tolist()         # only those that a replica cannot go on with
    lost = journeys["cause"] == records.CAUSE_NAMES.index("lost")
    assert np.isin(requests["status"][lost], (records.DROPPED, records.FAILED)).all()
    refused = np.isin(requests["status"], (records.REJECTED, records.DROPPED))
    assert (requests["first_token_ns"][refused] == records.NEVER_NS).all()      # who streamed has failed
    assert (journeys["downtime_ns"] >= 0).all()
    done = requests[requests["status"] == records.COMPLETED]
    assert (done["completed_ns"] >= done["first_token_ns"]).all()
    assert (done["first_token_ns"] > done["scheduled_ns"]).all()
    assert (done["scheduled_ns"] >= done["enqueued_ns"]).all()
    assert (done["enqueued_ns"] >= done["arrival_ns"]).all()
    assert (journeys["downtime_ns"][requests["status"] == records.COMPLETED]
            <= done["completed_ns"] - done["arrival_ns"]).all()


@seeds
@settings(max_examples=100)
def test_all_blocks_are_free_where_nobody_runs(seed):
    outcome = upkeep.run(scene(seed)[0], **scene(seed)[1])
    for replica in outcome.cluster.replicas:
        replica.check()
        if not replica.scheduler.running_rows():
            assert replica.scheduler.kv.free_blocks == replica.scheduler.kv.num_blocks


@seeds
@settings(max_examples=60)
def test_no_request_is_on_two_replicas(seed):
    scenario, options = scene(seed)
    watch = Watch()
    upkeep.run(scenario, observer=watch, **options)
    assert watch.cluster is not None


def shown(iterations):
    """Return the rows, in any order."""
    return sorted(iterations)


@seeds
@settings(max_examples=100)
def test_neither_a_second_run_nor_single_steps_change_anything(seed):
    scenario, options = scene(seed)
    one = upkeep.run(scenario, **options)
    for other in (upkeep.run(scenario, **options), upkeep.run(scenario, fast_forward=False, **options)):
        for table in ("requests", "journeys", "replicas", "lifecycle"):
            np.testing.assert_array_equal(getattr(one, table), getattr(other, table))
        assert shown(one.iterations) == shown(other.iterations)
        assert (one.token_times, one.gaps) == (other.token_times, other.gaps)


@seeds
@settings(max_examples=60)
def test_tokens_come_in_order_and_none_is_missing(seed):
    scenario, options = scene(seed)
    outcome = upkeep.run(scenario, **options)
    for row, times_ns in outcome.token_times.items():
        assert times_ns == sorted(times_ns)
        begun_again = any(failure.on_failure == "restart" for failure in options["failures"])
        if not begun_again or not outcome.journeys["retries"][row]:
            assert len(times_ns) == outcome.requests["output_tokens"][row]


def test_the_scenes_are_worth_running():
    outcomes = [upkeep.run(scene(seed)[0], **scene(seed)[1]) for seed in range(60)]
    assert sum(int(outcome.journeys["retries"].sum()) for outcome in outcomes) > 50
    assert sum(int((outcome.journeys["cause"] == records.CAUSE_NAMES.index("lost")).sum()) for outcome in outcomes) > 10
    states = {state for outcome in outcomes for state in outcome.lifecycle["state"].tolist()}
    assert states == set(range(len(records.STAGE_NAMES))) - {records.STAGE_NAMES.index("warming")}


@pytest.mark.parametrize("kind", ["stop", "link"])
def test_a_run_of_failures_for_ever_ends(kind):
    scenario, options = scene(1)
    options["failures"] = [Failure(kind=kind, which="each", mtbf_s=0.01, mttr_s=0.01)]
    outcome = upkeep.run(scenario, **options)
    assert sorted(held(outcome)) == np.flatnonzero(outcome.requests["status"] < FINAL).tolist()
