"""How long a run goes on for requests that wait at a gateway whose replicas are closed; iterations take 5 ms."""
import pytest

from simulator.admission.gateway_queue import GatewayQueue
from simulator.admission.saturation.concurrency import Concurrency, ConcurrencyParameters
from simulator.domain import records
from simulator.domain.failures import Failure, Health
from simulator.domain.gateway import GatewayQueueParameters, Saturation
from simulator.engine.diagnosis import diagnose_gateways
from simulator.engine.plan import GatewayPlan
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from support import upkeep
from support.scenario import load
from support.workloads import plain_workload

S = 1_000_000_000
every_dispatch = pytest.mark.parametrize("dispatch", ["ticks", "departures"])
IN_VAIN = ("gateway: 2 requests wait there for ever, request 1 first: the replicas that could take them fail, or stay "
           "saturated or closed")
FAILING = "; the run ended since nothing but failures and repairs happened for %s s, [cluster] give_up_failing_after_s"
QUIET = "; the run ended since nothing else happened for %s s, [cluster] give_up_after_s"
STARVED = [records.COMPLETED, records.WAITING, records.WAITING]


def serve(dispatch, *, patience=None, queue=None, **stop):
    """Serve requests of one token on one replica that stops at 10 s, behind a queue with ticks every 10 s.

    The first comes at 0; the second at 9.996 s and comes back without a token; the third, at 15 s, finds the replica
    closed. It is open again 30 s after a repair if it has not failed until then.
    `patience`: fields of ClusterPlan. `queue`: keys of the gateway queue.
    """
    saturation = Saturation(detector="concurrency", parameters=ConcurrencyParameters())
    front = GatewayPlan(RoundRobin, RoundRobinParameters(), queue=GatewayQueue, classes={},
                  queue_parameters=GatewayQueueParameters(dispatch=dispatch, tick_s=10.0, saturation=saturation,
                                                         **(queue or {})),
                  make=lambda kind, section, context: Concurrency(section.parameters, context))
    described = [{"id": str(i), "arrival": arrival_s, "prompt": [["uniq", 10]], "output_len": 1}
                 for i, arrival_s in enumerate((0, 9.996, 15))]
    scenario = load({"options": {}, "prices": {"base_us": 5000.0}, "requests": described})
    return upkeep.run(scenario, failures=[Failure(kind="stop", which=0, **stop)], front=front,
                      health=Health(reopening_delay_s=30.0), **(patience or {}))


@every_dispatch
def test_failures_and_repairs_alone_end_a_run_in_which_requests_wait(dispatch):
    # Down for 10 s, up for 10 s: never open again. Of 60,000 s, counted from the first event after the last arrival, at
    # 20 or 30 s, the clock shows the last event; these are 20 s apart at most.
    outcome = serve(dispatch, mtbf_s=10.0, mtbf_law="constant", duration_s=10.0)

    assert 60_000 * S <= outcome.cluster.clock_ns <= 60_050 * S
    assert outcome.requests["status"].tolist() == STARVED
    assert outcome.diagnosis == [IN_VAIN + FAILING % "60,000"]
    assert outcome.requests["replica"].tolist() == [0, -1, -1]
    assert outcome.requests["output_tokens"].tolist() == [1, 0, 0]
    assert outcome.journeys["retries"].tolist() == [0, 1, 0]


@every_dispatch
def test_a_repair_that_comes_late_is_waited_for(dispatch):
    # Open at 10 + 50,000 + 30 s, and ticks go on meanwhile; the last token comes within 20 s and two iterations
    outcome = serve(dispatch, at_s=10.0, duration_s=50_000.0)

    assert outcome.requests["status"].tolist() == [records.COMPLETED] * 3
    assert outcome.diagnosis == []
    assert 50_040 * S < outcome.requests["completed_ns"].max() < 50_061 * S


@pytest.mark.parametrize(("dispatch", "last_s"), [("ticks", 620), ("departures", 15)])
def test_without_a_repair_ticks_end_after_ten_minutes(dispatch, last_s):
    # Ticks, of which the first after the last arrival is that at 20 s; without ticks nothing is left at 15 s.
    outcome = serve(dispatch, at_s=10.0)

    assert outcome.cluster.clock_ns == last_s * S
    assert outcome.requests["status"].tolist() == STARVED
    assert outcome.diagnosis == [IN_VAIN + (QUIET % 600 if dispatch == "ticks" else "")]


def test_how_long_a_run_goes_on_is_a_choice():
    # Ticks every 10 s, from 20 s on: that at 70 s is the first more than 45 s later, and that at 60 s the last to act.
    # Of the repair at 50,010 s nobody hears who gives up 1,000 s after the failure.
    quiet = serve("ticks", at_s=10.0, patience={"give_up_ns": 45 * S})
    restless = serve("ticks", at_s=10.0, duration_s=50_000.0, patience={"give_up_failing_ns": 1000 * S})

    assert quiet.cluster.clock_ns == 60 * S
    assert quiet.diagnosis == [IN_VAIN + QUIET % 45]
    assert restless.cluster.clock_ns == 1020 * S
    assert restless.diagnosis == [IN_VAIN + FAILING % "1,000"]


def test_a_run_that_was_given_up_says_so_wherever_its_requests_wait():
    workload = plain_workload([0, 0], 10, 1)
    workload.requests["status"], workload.requests["replica"] = records.WAITING, 0

    assert diagnose_gateways(workload, 0, True) == []
    assert diagnose_gateways(workload, 45 * S, True) == [
        "replicas: 2 requests wait at some that stand still" + QUIET % 45]


def waits(outcome):
    """Return the cause of each request that was dropped; None: of the others."""
    return [records.CAUSE_NAMES[cause] if status == records.REJECTED else None
            for status, cause in zip(outcome.requests["status"], outcome.journeys["cause"], strict=True)]


@pytest.mark.parametrize(("limits", "closed_s", "causes", "last_s"), [
    # the second request waits from 10 s on, the third from 15 s on, while the replica is away
    ({"ttl_s": 7.0}, 1000.0, [None, "no_replica", "no_replica"], 22),
    ({"ttl_s": 7.0, "expiry_scan_s": 10.0}, 1000.0, [None, "no_replica", "no_replica"], 30),
    ({"no_endpoint_ttl_s": 3.0}, 1000.0, [None, "no_replica", "no_replica"], 18),
    # open again at 60 s: what has waited for longer than 7 s then goes, since there is a replica
    ({"ttl_s": 7.0, "no_endpoint_ttl_s": 500.0}, 20.0, [None, "expired", "expired"], 60),
    ({"ttl_s": 47.0, "no_endpoint_ttl_s": 500.0}, 20.0, [None, "expired", None], 60)])
def test_waits_end_by_the_limit_that_holds_at_the_time(limits, closed_s, causes, last_s):
    outcome = serve("ticks", queue=limits, at_s=10.0, duration_s=closed_s)

    assert waits(outcome) == causes
    if "expired" not in causes:
        assert outcome.cluster.clock_ns == last_s * S
