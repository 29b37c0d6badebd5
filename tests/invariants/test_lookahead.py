"""Replicas that act only when a request may leave them do what replicas do that are kept up to date."""
from random import Random

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from simulator import registry
from simulator.admission.gateway_queue import GatewayQueue
from simulator.admission.saturation.concurrency import Concurrency, ConcurrencyParameters
from simulator.domain.gateway import GatewayQueueParameters, Saturation
from simulator.engine.build import build
from simulator.engine.plan import GatewayPlan, Hooks
from simulator.latency.linear import Linear, LinearParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import plan_of, run
from support.scenario import load
from support.traffic import random_traffic
from support.workloads import plain_workload

MS = 1_000_000


def front(name="least_loaded", most=None, **keys):
    """Return a front with this router; `most`: of a gateway queue in front of it, requests in flight."""
    router = registry.load("router", name)
    parameters = msgspec.convert(keys, router.Parameters)
    if most is None:
        return GatewayPlan(router, parameters)
    queue = GatewayQueueParameters(order="fifo", dispatch="departures", saturation=Saturation(
        detector="concurrency", parameters=ConcurrencyParameters(max_concurrency=most)))
    return GatewayPlan(router, parameters, queue=GatewayQueue, queue_parameters=queue, classes={},
                 make=lambda kind, section, context: Concurrency(section.parameters, context))


FRONTS = {
    "least_loaded": front(),
    "least_loaded by tokens": front(metric="tokens"),
    "power_of_two": front("power_of_two"),
    "session": front("session", otherwise="least_loaded"),
    "behind a queue of three": front(most=3),
    "behind a queue of forty": front(most=40),
}


def assert_same(one, other):
    for name in ("requests", "replicas", "itl_gap_ns", "itl_count"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    shown = [name for name in one.iterations.dtype.names if name != "spare"]
    np.testing.assert_array_equal(*(np.sort(each.iterations[shown], order=shown[:3]) for each in (one, other)))


@pytest.mark.parametrize("name", FRONTS)
@pytest.mark.parametrize("seed", range(60))
def test_nothing_depends_on_when_replicas_act(name, seed):
    description, replicas = random_traffic(4000 + seed)
    lagging, kept = (run(load(description), details=False, replicas=replicas, front=FRONTS[name], coupled=coupled)
                     for coupled in (False, True))

    assert_same(lagging, kept)


@pytest.mark.parametrize("seed", [*range(6000, 6040), 194, 418, 1194, 3672, 3750])
def test_nothing_depends_on_it_where_iterations_end_at_the_same_instants(seed):
    description, _ = random_traffic(seed)
    description["prices"] = {"base_us": 5000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0,
                             "per_context_token_us": 0.0}
    description["options"] |= {"async_scheduling": False, "num_speculative_tokens": 0}
    replicas = Random(seed).choice([2, 3, 9])
    for chosen in (front(metric="tokens", most=2), front(most=2)):
        assert_same(*(run(load(description), details=False, replicas=replicas, front=chosen, coupled=coupled)
                      for coupled in (False, True)))


@pytest.mark.parametrize("seed", range(30))
def test_a_horizon_cuts_all_replicas_at_the_same_instant(seed):
    description, replicas = random_traffic(5000 + seed)
    last_ns = int(1e9 * description["requests"][-1]["arrival"]) + 1
    for horizon_ns in (last_ns // 3, last_ns, last_ns + 200 * MS):
        lagging, kept = (run(load(description), details=False, replicas=replicas, front=front(), coupled=coupled,
                             horizon_ns=horizon_ns) for coupled in (False, True))

        assert_same(lagging, kept)


def defers(latency=None, parameters=None, **setup):
    workload = plain_workload([0], [10], [10])
    plan = plan_of(parameters or VllmParameters(), latency or Linear(LinearParameters()), num_gpu_blocks=100,
                   block_size=16, max_model_len=1000, replicas=2, **setup)
    return build(workload, plan, Hooks()).fleet.defers


def test_replicas_lag_behind_where_requests_in_flight_are_all_that_counts():
    assert defers(front=front())
    assert defers(front=front(metric="tokens"))
    assert not defers(front=front(metric="waiting"))            # a state of the replica
    assert not defers(front=front(metric="kv"))
    assert not defers(front=front("round_robin"))               # looks at nothing: served in slices
    assert not defers(front=front(), coupled=True)


def test_replicas_of_which_too_little_is_known_do_not_lag():
    assert not defers(Linear(LinearParameters(per_sequence_us=-1.0)), front=front())
    assert not defers(parameters=VllmParameters(async_scheduling=True), front=front())
    assert not defers(front=front(), fast_forward=False)


@pytest.mark.parametrize("coupled", [True, False])
def test_more_requests_than_can_be_left_with_a_replica_are_taken_in(coupled):
    # Iterations of 10 ms. The first request decodes from 10 to 100 ms; nine come within the second iteration and start
    # together with the third, at 20 ms.
    prices = LinearParameters(base_us=10_000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0)
    arrivals_ns = [0] + [11 * MS + i for i in range(9)]
    recording = run_plain(arrivals_ns, [10] + [2] * 9, prices, coupled)

    assert recording["scheduled_ns"].tolist() == [0] + [20 * MS] * 9
    assert recording["completed_ns"].tolist() == [100 * MS] + [40 * MS] * 9


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("idle", [0, 1])
def test_requests_sent_at_one_instant_to_an_idle_replica_start_together(idle, coupled):
    # Iterations of 10 ms; two requests may be in flight, one for each replica on average. The first two end at 30 ms on
    # one replica; at that instant the other two go to the idle one, which has acted if its number is lower, and start
    # there together.
    workload = plain_workload([0, 0, MS, MS], [1] * 4, [3, 3, 5, 5])
    owners = sessions_by_replica(workload, coupled)
    workload.demands["session"] = [owners[1 - idle]] * 2 + [owners[idle]] * 2
    requests = run_sessions(workload, coupled)

    assert requests["replica"].tolist() == [1 - idle] * 2 + [idle] * 2
    assert requests["scheduled_ns"].tolist() == [0, 0, 30 * MS, 30 * MS]
    assert requests["completed_ns"].tolist() == [30 * MS, 30 * MS, 80 * MS, 80 * MS]


def sessions_by_replica(workload, coupled):
    """Return {replica: a session that goes there}."""
    owners = {}
    for session in range(16):
        workload.demands["session"] = session
        owners[int(run_sessions(workload, coupled)["replica"][0])] = session
    return owners


def run_sessions(workload, coupled):
    prices = LinearParameters(base_us=10_000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0)
    plan = plan_of(VllmParameters(), Linear(prices), num_gpu_blocks=1000, block_size=16, max_model_len=1000, replicas=2,
                   front=front("session", most=1, otherwise="least_loaded"), coupled=coupled)
    fresh = replace(workload, requests=workload.requests.copy())
    build(fresh, plan, Hooks()).run()
    return fresh.requests


@pytest.mark.parametrize("coupled", [True, False])
def test_a_prompt_that_takes_the_turns_of_others_makes_nobody_heard_of_late(coupled):
    # 1 ms a sequence, 64 tokens an iteration. When the request of row 10 gives up, the threshold lets the unfinished
    # prompt of row 1 take all tokens, so that rows 2 and 3, which have just begun to decode, get no turn and iterations
    # become shorter: the first request is complete at 311 ms, and the one that waits at the gateway follows then.
    arrivals_ns = [0] + [int(130.5 * MS)] * 10 + [140 * MS]
    workload = plain_workload(arrivals_ns, [6400, 6400, 2, 2] + [10] * 8, [121] + [1000] * 11)
    workload.demands["deadline_ns"][10] = 133 * MS
    parameters = VllmParameters(max_num_seqs=4, max_num_batched_tokens=640, max_num_scheduled_tokens=64,
                                long_prefill_token_threshold=1, long_prefill_token_threshold_adaptive=True)
    prices = LinearParameters(base_us=0.0, per_sequence_us=1000.0, per_prefill_token_us=0.0, per_context_token_us=0.0)
    plan = plan_of(parameters, Linear(prices), num_gpu_blocks=10_000, block_size=16, max_model_len=8000,
                   front=front(most=10), coupled=coupled)
    build(workload, plan, Hooks()).run()

    assert workload.requests["completed_ns"][0] == 311 * MS
    assert workload.requests["enqueued_ns"][11] == 311 * MS


def run_plain(arrivals_ns, outputs, prices, coupled):
    workload = plain_workload(arrivals_ns, [1] * len(outputs), outputs)
    plan = plan_of(VllmParameters(), Linear(prices), num_gpu_blocks=1000, block_size=16, max_model_len=1000,
                   front=front(), coupled=coupled)
    build(workload, plan, Hooks()).run()
    return workload.requests
