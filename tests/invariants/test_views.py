"""A router sees exactly what is there at the instant it looks, whichever way the replicas got there."""
import numpy as np
import pytest

from simulator import registry
from simulator.engine.plan import GatewayPlan
from simulator.routing.python_router import PythonRouter
from support.engine import run
from support.scenario import load
from support.traffic import random_traffic

SEEN = []


class Notes(PythonRouter):
    """Round robin that writes down what it sees."""

    uses_caches = True

    def choose(self, request, now_ns):
        """Note the states; send the request to the next replica."""
        cached = self.cached_blocks(request, now_ns)
        SEEN.append((now_ns, self.states.copy(), self.accounts["in_flight"].copy(), cached))
        return len(SEEN) % self.num_replicas


def in_stages(seed, description):
    """Return the layers of the stages of a third of all scenarios, as `run` takes them; None: one stage."""
    if seed % 3 > 0:
        return None
    description["options"]["async_scheduling"] &= description["options"]["vllm_version"] != "0.10"
    return [(1, 1), (2, 3, 1), (1, 1, 1, 1)][seed // 3 % 3]


def seen(description, replicas, **options):
    """Return what the router saw at each arrival."""
    SEEN.clear()
    run(load(description), details=False, replicas=replicas, front=GatewayPlan(Notes, None), **options)
    return list(SEEN)


@pytest.mark.parametrize("seed", range(40))
def test_states_are_the_same_with_and_without_fast_forward(seed):
    description, replicas = random_traffic(seed)
    layers = in_stages(seed, description)
    fast, slow = (seen(description, replicas, layers=layers, fast_forward=fast) for fast in (True, False))
    assert len(fast) == len(slow) > 0
    for (now_ns, states, in_flight, cached), (then_ns, expected, expected_in_flight, expected_cached) in zip(
            fast, slow, strict=True):
        assert now_ns == then_ns
        for name in set(states.dtype.names) - {"spare"}:
            assert np.array_equal(states[name], expected[name]), (now_ns, name, states[name], expected[name])
        assert np.array_equal(in_flight, expected_in_flight)
        assert cached == expected_cached


class Checks(Notes):
    """Compares what it sees with a look at every replica; goes by load, as whoever looks does."""

    def choose(self, request, now_ns):
        """Check; send the request to the replica that has most of its prompt, the least loaded of several."""
        cached = self.cached_blocks(request, now_ns)
        self.view.check(now_ns)
        SEEN.append(now_ns)
        load = self.accounts["in_flight"] + self.states["waiting"] - np.array(cached)
        return int(np.argmin(load))


class ChecksBlocks(Checks):
    """The same where no more than blocks in use is wanted."""

    def __init__(self, parameters, context):
        super().__init__(parameters, context)
        self.view.wants_levels, self.view.wants_blocks = False, True


class ChecksLater(Checks):
    """The same where levels are wanted of a sudden, as an autoscaler does."""

    def __init__(self, parameters, context):
        super().__init__(parameters, context)
        self.view.wants_levels = False

    def choose(self, request, now_ns):
        """Want more from the tenth request on."""
        self.view.wants_levels = len(SEEN) >= 10
        return super().choose(request, now_ns)


def shared_beginnings(seed):
    """Return traffic whose prompts share beginnings alone: while it decodes, blocks that are found can only go."""
    description, replicas = random_traffic(seed)
    description["options"] |= {"enable_prefix_caching": True, "num_speculative_tokens": 0,
                               "num_blocks": 1 + 1100 // description["options"]["block_size"]}
    for request in description["requests"]:
        request["prompt"] = [piece for piece in request["prompt"] if piece[0] in ("group", "uniq")]
        request["output_len"] = max(request["output_len"], 100)
    return description, replicas


@pytest.mark.parametrize("router", [Checks, ChecksBlocks, ChecksLater])
@pytest.mark.parametrize("traffic", [random_traffic, shared_beginnings])
@pytest.mark.parametrize("seed", range(30))
def test_a_look_shows_what_a_look_at_every_replica_shows(seed, traffic, router):
    description, replicas = traffic(3000 + seed)
    layers = in_stages(seed, description)
    SEEN.clear()
    run(load(description), layers=layers, details=False, replicas=max(replicas, 2), front=GatewayPlan(router, None))
    assert len(SEEN) > 0


FRONTS = {
    "dynamo": {}, "kvaware": {"threshold_tokens": 30}, "least_loaded": {"metric": "kv"}, "vllm_dp": {},
    "llumnix": {"enable_cache_aware_scheduling": True, "cache_aware_min_tokens": 1, "kvs_chunk_size": 8,
                "status_poll_interval_s": 0.0},
    "weighted": {}, "power_of_two": {"metric": "kv"}}


@pytest.mark.parametrize("name", FRONTS)
@pytest.mark.parametrize("seed", range(25))
def test_routers_decide_the_same_with_and_without_fast_forward(name, seed):
    description, replicas = random_traffic(7000 + seed)
    layers = in_stages(seed, description)
    router = registry.load("router", name)
    front = GatewayPlan(router, router.Parameters(**FRONTS[name]))
    fast, slow = (run(load(description), layers=layers, details=False, replicas=max(replicas, 2), front=front,
                      fast_forward=fast) for fast in (True, False))

    np.testing.assert_array_equal(fast.requests, slow.requests)


@pytest.mark.parametrize("router", [Checks, ChecksBlocks])
@pytest.mark.parametrize("seed", range(20))
def test_so_it_does_of_ranks_in_lock_step(seed, router):
    description, _ = shared_beginnings(5000 + seed)
    description["options"]["async_scheduling"] = False
    SEEN.clear()
    run(load(description), details=False, replicas=4, ranks=2, front=GatewayPlan(router, None))
    assert len(SEEN) > 0
