"""Clusters of one-slot replicas against queueing theory.

A replica that runs one request at a time, whose only iteration takes as long as its prompt, is a server; Poisson
arrivals and exponential prompts make it an M/M/1 queue, several behind one gateway queue an M/M/k queue.
"""
import math

import numpy as np
import pytest

from simulator.admission.gateway_queue import GatewayQueue
from simulator.admission.saturation.concurrency import Concurrency, ConcurrencyParameters
from simulator.domain.gateway import GatewayQueueParameters, Saturation
from simulator.engine.plan import GatewayPlan
from simulator.latency.linear import Linear, LinearParameters
from simulator.routing.policies.least_loaded import LeastLoaded, LeastLoadedParameters
from simulator.routing.policies.power_of_two import PowerOfTwo, PowerOfTwoParameters
from simulator.routing.policies.random import Random, RandomParameters
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

REPLICAS = 4
SERVICE_S = 0.1
LOAD = 0.8
REQUESTS = 60_000
US_PER_TOKEN = 10.0


@pytest.fixture(scope="module")
def mean_wait_s():
    """Return a function: the mean time between arrival and first scheduled behind a `GatewayPlan`."""
    draws = np.random.default_rng(7)
    gaps_s = draws.exponential(SERVICE_S / (LOAD * REPLICAS), REQUESTS)
    prompts = np.maximum(np.round(draws.exponential(SERVICE_S * 1e6 / US_PER_TOKEN, REQUESTS)), 1).astype(int)
    arrivals_ns = np.rint(1e9 * np.cumsum(gaps_s)).astype(np.int64)
    latency = Linear(LinearParameters(base_us=0.0, per_sequence_us=0.0, per_prefill_token_us=US_PER_TOKEN,
                                      per_context_token_us=0.0))

    def run(front):
        recording = record(
            plain_workload(arrivals_ns, prompts, 1), VllmParameters(max_num_seqs=1, max_num_batched_tokens=10_000_000),
            latency, front=front, details=False, replicas=REPLICAS, num_gpu_blocks=1_000_000, block_size=16,
            max_model_len=10_000_000)
        waits_ns = recording.requests["scheduled_ns"] - recording.requests["arrival_ns"]
        assert (waits_ns >= 0).all()
        return waits_ns.mean() / 1e9

    return run


def erlang_c(servers, offered):
    """Return the probability that an arrival at an M/M/k queue has to wait."""
    busy = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return busy / (sum(offered**n / math.factorial(n) for n in range(servers)) + busy)


MMK_WAIT_S = erlang_c(REPLICAS, LOAD * REPLICAS) * SERVICE_S / (REPLICAS * (1 - LOAD))
MM1_WAIT_S = LOAD * SERVICE_S / (1 - LOAD)


def gateway():
    """Return a front whose gateway holds requests back until a replica is free."""
    def make(kind, section, context):
        return Concurrency(section.parameters, context)

    queue = GatewayQueueParameters(order="fifo", dispatch="departures", saturation=Saturation(
        detector="concurrency", parameters=ConcurrencyParameters(max_concurrency=1)))
    return GatewayPlan(LeastLoaded, LeastLoadedParameters(), queue=GatewayQueue, queue_parameters=queue, classes={},
                 make=make)


def test_a_gateway_queue_before_one_slot_replicas_is_an_m_m_k_queue(mean_wait_s):
    # standard error of the mean over 60,000 correlated waits: about 3 %
    assert mean_wait_s(gateway()) == pytest.approx(MMK_WAIT_S, rel=0.1)


def test_random_routing_makes_k_m_m_1_queues(mean_wait_s):
    assert mean_wait_s(GatewayPlan(Random, RandomParameters())) == pytest.approx(MM1_WAIT_S, rel=0.1)


def test_the_shortest_queue_lies_between_one_queue_and_two_choices(mean_wait_s):
    # Joining the shortest queue is the best rule that cannot hold requests back: never better than M/M/k, and better
    # than choosing among two, which is better than taking turns, which is better than chance.
    shortest = mean_wait_s(GatewayPlan(LeastLoaded, LeastLoadedParameters()))
    two = mean_wait_s(GatewayPlan(PowerOfTwo, PowerOfTwoParameters()))
    turns = mean_wait_s(GatewayPlan(RoundRobin, RoundRobinParameters()))
    chance = mean_wait_s(GatewayPlan(Random, RandomParameters()))
    assert mean_wait_s(gateway()) < shortest < two < turns < chance
