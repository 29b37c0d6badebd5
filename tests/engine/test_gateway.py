"""The way of a request to the replicas: what one that leaves lets pass."""
import pytest

from simulator.admission.gateway_queue import GatewayQueue
from simulator.admission.saturation.concurrency import Concurrency, ConcurrencyParameters
from simulator.domain import records
from simulator.domain.gateway import GatewayQueueParameters, Saturation
from simulator.engine.plan import GatewayPlan
from simulator.latency.linear import Linear, LinearParameters
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

MS = 1_000_000


def one_at_a_time():
    """Return a front that lets one request at a time pass, the next when one leaves its replica."""
    queue = GatewayQueueParameters(order="fifo", dispatch="departures", saturation=Saturation(
        detector="concurrency", parameters=ConcurrencyParameters(max_concurrency=1)))
    return GatewayPlan(RoundRobin, RoundRobinParameters(), queue=GatewayQueue, queue_parameters=queue, classes={},
                 make=lambda kind, section, context: Concurrency(section.parameters, context))


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_request_that_its_replica_refuses_lets_the_next_one_pass_at_once(fast_forward):
    # Iterations of 10 ms: the first request, 1 prompt token and 3 outputs, runs from 0 to 30 ms. The second is longer
    # than the model; let pass at 30 ms it is refused at 30 ms, so that the third is let pass then, too.
    workload = plain_workload([0, MS, 2 * MS], [1, 5000, 1], [3, 1, 1])
    prices = LinearParameters(base_us=10_000.0, per_sequence_us=0.0, per_prefill_token_us=0.0, per_context_token_us=0.0)
    requests = record(workload, VllmParameters(), Linear(prices), details=False, num_gpu_blocks=1000, block_size=16,
                      max_model_len=1000, front=one_at_a_time(), fast_forward=fast_forward).requests
    assert requests["status"].tolist() == [records.COMPLETED, records.REJECTED, records.COMPLETED]
    assert requests["completed_ns"].tolist() == [30 * MS, -1, 40 * MS]
    assert requests["scheduled_ns"].tolist() == [0, -1, 30 * MS]
