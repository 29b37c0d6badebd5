"""Every latency backend against `linear`: the event loop on the same requests."""
import time

import pytest
from backends import BACKENDS
from cases import Case, NoSink, Prepared
from limit import Unavailable
from pairs import cpu_s

from simulator.engine.build import build
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import ClusterPlan, GatewayPlan, Hooks, Pool
from simulator.latency.linear import Linear
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from simulator.scheduling.vllm import Vllm, VllmParameters

pytestmark = pytest.mark.benchmark(group="backends", timer=time.process_time)

CASE = Case(num_requests=50_000)
ROUNDS = 7


class Timed(Prepared):
    """A case with a latency model of its own."""

    def __init__(self, model):
        super().__init__(CASE)
        self.model = model

    def cluster(self, sink=None):
        """Return a new cluster with all requests still to come."""
        self.workload.requests[:] = self._untouched
        pool = Pool(Vllm, VllmParameters(), self.model, num_gpu_blocks=CASE.num_gpu_blocks, block_size=16,
                    max_model_len=16384)
        plan = ClusterPlan((pool,), GatewayPlan(RoundRobin, RoundRobinParameters()))
        return build(self.workload, plan, Hooks(Recorder(sink or NoSink(), False, False)))


@pytest.fixture(scope="module")
def linear():
    return Timed(Linear(Linear.Parameters()))


@pytest.mark.parametrize("name", BACKENDS)
def test_backend_against_linear(name, linear, pairs, report, tmp_path):
    try:
        timed = Timed(BACKENDS[name](tmp_path / "profiles"))
    except Unavailable as reason:
        pytest.skip(str(reason))

    pair = pairs.against(lambda: cpu_s(linear.ready()), timed.ready, rounds=ROUNDS)

    ours, theirs = timed.total("iterations"), linear.total("iterations")
    report.add(name, f"{pair.ratio:.2f} x linear", "<= 3 x",
               f"{pair}; {ours:,} iterations against {theirs:,}: {pair.ratio * theirs / ours:.2f} x for each")
