"""Equal replicas are exchangeable: which number one has changes nothing for policies that do not look at numbers."""
import numpy as np
import pytest

from simulator.domain import records
from simulator.engine.plan import GatewayPlan
from simulator.latency.linear import Linear, LinearParameters
from simulator.routing.policies.least_loaded import LeastLoaded, LeastLoadedParameters
from simulator.routing.python_router import PythonRouter
from simulator.scheduling.vllm import VllmParameters
from support.engine import record
from support.workloads import plain_workload

REPLICAS = 6
REQUESTS = 800


class FewestTokens(PythonRouter):
    """The replica with the fewest prompt tokens in flight; among equals the one that comes first in `order`."""

    order = tuple(range(REPLICAS))

    def choose(self, request, now_ns):
        """Return the first of the least loaded."""
        return min(self.order, key=lambda replica: self.accounts["in_flight_tokens"][replica])


class Backwards(FewestTokens):
    """The same with the replicas numbered from the other end."""

    order = tuple(reversed(range(REPLICAS)))


def serve(router, parameters=None, seed=0):
    """Return the request table; prompts differ in length, so that only idle replicas are equally loaded."""
    draws = np.random.default_rng(11)
    prompts = draws.permutation(np.arange(50, 50 + REQUESTS))
    arrivals_ns = np.sort(draws.integers(0, 20 * 10**9, REQUESTS))
    workload = plain_workload(arrivals_ns, prompts, draws.integers(1, 60, REQUESTS))
    recording = record(workload, VllmParameters(max_num_seqs=4), Linear(LinearParameters()), details=False, seed=seed,
                       replicas=REPLICAS, num_gpu_blocks=4000, block_size=16, max_model_len=4096,
                       front=GatewayPlan(router, parameters))
    assert (recording.requests["status"] == records.COMPLETED).all()
    return recording.requests


def assert_only_numbers_differ(one, other):
    for name in set(one.dtype.names) - {"replica", "spare"}:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_numbering_replicas_from_the_other_end_changes_no_request():
    one, other = serve(FewestTokens), serve(Backwards)
    assert_only_numbers_differ(one, other)
    assert (one["replica"] == REPLICAS - 1 - other["replica"]).all()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_how_ties_between_idle_replicas_are_drawn_changes_no_request(seed):
    parameters = LeastLoadedParameters(metric="tokens")
    one, other = serve(LeastLoaded, parameters), serve(LeastLoaded, parameters, seed)
    assert_only_numbers_differ(one, other)
    assert (one["replica"] != other["replica"]).any()
