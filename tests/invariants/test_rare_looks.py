"""Replicas that are brought up to date when somebody looks do what replicas do that are so at every event."""
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

import simulator.engine.build as building
from invariants.test_lookahead import assert_same, front
from simulator import registry
from simulator.engine.build import build
from simulator.engine.plan import GatewayPlan, Hooks
from simulator.latency.linear import Linear, LinearParameters
from simulator.routing.python_router import PythonRouter
from simulator.scheduling.vllm import VllmParameters
from support.engine import plan_of, run
from support.scenario import load
from support.traffic import random_traffic
from support.workloads import plain_workload

MS = 1_000_000
FRONTS = {
    "least waiting": front(metric="waiting"),
    "least KV": front(metric="kv"),
    "vllm_dp behind a queue of three": front("vllm_dp", most=3),
    "dynamo": front("dynamo"),
    "precise-prefix-cache": GatewayPlan(registry.load("router", "weighted"),
                                        registry.load("router", "weighted").Parameters()),
    "kvaware behind a queue of forty": front("kvaware", most=40, threshold_tokens=40),
}


@pytest.fixture
def always_lag(monkeypatch):
    """Let replicas lag where that does not pay, too."""
    monkeypatch.setattr(building, "REQUESTS_BETWEEN_LOOKS", 0.0)


def seen_late(chosen, rng):
    ages_ns = [rng.choice([1, MS, 7 * MS, 50 * MS, 700 * MS]) for _ in range(2)]
    return replace(chosen, snapshot_interval_ns=ages_ns[0], cache_delay_ns=ages_ns[1])


@pytest.mark.usefixtures("always_lag")
@pytest.mark.parametrize("name", FRONTS)
@pytest.mark.parametrize("seed", range(40))
def test_nothing_depends_on_when_replicas_act(name, seed):
    description, replicas = random_traffic(14_000 + seed)
    chosen = seen_late(FRONTS[name], Random(seed))
    lagging, kept = (run(load(description), details=False, replicas=max(replicas, 2), front=chosen, coupled=coupled)
                     for coupled in (False, True))

    assert_same(lagging, kept)


@pytest.mark.usefixtures("always_lag")
@pytest.mark.parametrize("name", FRONTS)
@pytest.mark.parametrize("seed", range(30))
def test_nothing_depends_on_it_where_iterations_end_at_the_same_instants(name, seed):
    rng = Random(seed)
    replicas, chosen = rng.choice([2, 3, 9]), seen_late(FRONTS[name], rng)
    assert_same(*(run(load(in_step(seed)), details=False, replicas=replicas, front=chosen, coupled=coupled)
                  for coupled in (False, True)))


def in_step(seed):
    """Return traffic of which much happens at the same instants: iterations take 5 ms, whatever is in them."""
    description, _ = random_traffic(16_000 + seed)
    description["prices"] = {"base_us": 5000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0,
                             "per_context_token_us": 0.0}
    description["options"] |= {"async_scheduling": False, "num_speculative_tokens": 0}
    for request in description["requests"]:
        request["arrival"] = round(request["arrival"], 2)
    return description


SEEN = []


class Notes(PythonRouter):
    """Round robin that writes down what it sees."""

    uses_caches = True

    def choose(self, request, now_ns):
        """Note it; send the request to the next replica."""
        SEEN.append((now_ns, self.states.copy(), self.cached_blocks(request, now_ns)))
        return len(SEEN) % self.num_replicas


def seen(description, replicas, late):
    """Return what the router saw of replicas that lag, and of others."""
    found = []
    for coupled in (False, True):
        SEEN.clear()
        run(load(description), details=False, replicas=replicas, front=late, coupled=coupled)
        found.append(list(SEEN))
    return found


@pytest.mark.usefixtures("always_lag")
@pytest.mark.parametrize("seed", range(40))
def test_a_look_shows_what_is_there_though_replicas_lag(seed):
    description, replicas = random_traffic(18_000 + seed)
    assert_seen_alike(*seen(description, max(replicas, 2), seen_late(GatewayPlan(Notes, None), Random(seed))))


@pytest.mark.usefixtures("always_lag")
@pytest.mark.parametrize("seed", range(60))
def test_so_does_a_look_when_requests_leave_and_iterations_end(seed):
    rng = Random(seed)
    behind = replace(front(most=rng.choice([1, 2, 3, 8])), router=Notes, router_parameters=None)
    late = replace(behind, snapshot_interval_ns=1, cache_delay_ns=1)
    assert_seen_alike(*seen(in_step(seed), rng.choice([2, 3, 9]), late))


def assert_seen_alike(lagging, kept):
    assert len(lagging) == len(kept) > 0
    for (now_ns, states, cached), (then_ns, expected, expected_cached) in zip(lagging, kept, strict=True):
        assert now_ns == then_ns
        np.testing.assert_array_equal(states, expected)
        assert cached == expected_cached


def defers(interval_ns=0, delay_ns=0, name="dynamo", gap_ns=10 * MS):
    # A hundred requests for two replicas, 5 ms apart at each if gap_ns is 10 ms.
    workload = plain_workload([gap_ns // 2 * i for i in range(100)], [10] * 100, [10] * 100)
    plan = plan_of(VllmParameters(), Linear(LinearParameters()), num_gpu_blocks=100, block_size=16, max_model_len=1000,
                   replicas=2, front=replace(front(name), snapshot_interval_ns=interval_ns, cache_delay_ns=delay_ns))
    return build(workload, plan, Hooks()).fleet.defers


def test_replicas_lag_where_a_request_and_a_half_comes_to_each_between_two_looks():
    assert defers(15 * MS, 15 * MS)
    assert not defers(14 * MS, 14 * MS)


def test_replicas_do_not_lag_where_anything_is_live():
    assert not defers(1000 * MS, 0)
    assert not defers(0, 1000 * MS)
    assert defers(1000 * MS, 0, name="vllm_dp")         # does not ask for caches
    assert defers(0, 1000 * MS, name="kvaware")         # nor this for states


class FirstTwoApart(Notes):
    """Sends the first two requests to replica 1, the others to replica 0; asks for caches when the last one comes."""

    def choose(self, request, now_ns):
        """Note what is cached then."""
        if request.row == 3:
            SEEN.append((now_ns, self.cached_blocks(request, now_ns)))
        return int(request.row < 2)


@pytest.mark.usefixtures("always_lag")
@pytest.mark.parametrize("coupled", [True, False])
def test_who_was_sent_to_an_idle_replica_at_this_instant_has_not_started(coupled):
    # Iterations of 10 ms, two requests in flight, blocks of 16 tokens. The first two leave replica 1 at 30 ms, where
    # two blocks stay; the third goes to replica 0, where it still waits, and nothing is cached, when the fourth is
    # routed at the same instant. Both start together.
    description = {
        "name": "two leave at once", "spec_accept": [0],
        "options": {"max_num_batched_tokens": 512, "max_num_seqs": 8, "block_size": 16, "max_model_len": 1024,
                    "num_blocks": 1000, "enable_prefix_caching": True},
        "prices": {"base_us": 10_000.0, "per_sequence_us": 0.0, "per_prefill_token_us": 0.0,
                   "per_context_token_us": 0.0},
        "requests": [{"id": f"r{row}", "arrival": 0.0 if row < 2 else 0.001, "output_len": 3, "priority": 0,
                      "prompt": [["group", "A", 32], ["uniq", 1]]} for row in range(4)]}
    SEEN.clear()
    late = replace(front(most=1), router=FirstTwoApart, router_parameters=None, snapshot_interval_ns=1,
                   cache_delay_ns=1)
    requests = run(load(description), details=False, replicas=2, front=late, coupled=coupled).requests

    assert SEEN == [(30 * MS, [0, 2])]
    assert requests["scheduled_ns"].tolist() == [0, 0, 30 * MS, 30 * MS]
