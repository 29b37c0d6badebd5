"""A router sees exactly what is there at the instant it looks, whichever way the replicas got there."""
import numpy as np
import pytest

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


def seen(description, replicas, **options):
    """Return what the router saw at each arrival."""
    SEEN.clear()
    run(load(description), details=False, replicas=replicas, front=GatewayPlan(Notes, None), **options)
    return list(SEEN)


@pytest.mark.parametrize("seed", range(40))
def test_states_are_the_same_with_and_without_fast_forward(seed):
    description, replicas = random_traffic(seed)
    fast, slow = seen(description, replicas), seen(description, replicas, fast_forward=False)
    assert len(fast) == len(slow) > 0
    for (now_ns, states, in_flight, cached), (then_ns, expected, expected_in_flight, expected_cached) in zip(
            fast, slow, strict=True):
        assert now_ns == then_ns
        for name in set(states.dtype.names) - {"spare"}:
            assert np.array_equal(states[name], expected[name]), (now_ns, name, states[name], expected[name])
        assert np.array_equal(in_flight, expected_in_flight)
        assert cached == expected_cached
