"""Runs of a scheduler in several ways, of which the first is the slowest, and all must lead to the same."""
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np

import simulator
from invariants import test_failures, test_migration, test_views
from invariants.test_invariants import assert_identical
from invariants.test_pipeline_conservation import requests_of
from invariants.test_whole_cluster import experiment_of
from simulator import registry
from simulator.engine.plan import GatewayPlan
from support import engine, upkeep

OF_VLLM = ("engine.async_scheduling", "engine.speculative", "topology.pipeline_parallel")


@dataclass(frozen=True)
class Ways:
    """A scheduler, and in which ways it runs.

    slowly : options of the run that the others are compared with. others : theirs.
    parameters : (rng, limits of a vLLM scenario) -> its parameters. long_scenario : seed -> (Scenario, replicas).
    """

    scheduler: type
    slowly: dict
    others: tuple[dict, ...]
    parameters: Callable[[Random, Any], Any]
    long_scenario: Callable[[int], tuple]

    def run(self, scenario, **options):
        """Return the recording of a run."""
        return engine.run(scenario, details=False, scheduler=self.scheduler, **options)

    def assert_same(self, scenario, replicas=1):
        """Return the slow run of a scenario, which is the same in other ways."""
        slow = self.run(scenario, replicas=replicas, **self.slowly)
        for way in (*self.others, {"coupled": True}):
            assert_identical(slow, self.run(scenario, replicas=replicas, **way))
        return slow

    def assert_same_up_to_a_horizon(self, seed):
        """Check a run that ends when a third of it is over."""
        scenario, replicas = self.long_scenario(seed)
        horizon_ns = int(self.run(scenario, replicas=replicas).requests["completed_ns"].max()) // 3
        assert_identical(self.run(scenario, replicas=replicas, horizon_ns=horizon_ns),
                         self.run(scenario, replicas=replicas, horizon_ns=horizon_ns, **self.slowly))

    def assert_same_upkeep(self, seed):
        """Check a cluster whose replicas fail, come and go."""
        scenario, options = test_failures.scene(seed)
        scenario = replace(scenario, parameters=self.parameters(Random(seed), scenario.parameters))
        slow, *others = (upkeep.run(scenario, scheduler=self.scheduler, **(options | way | {"layers": None}))
                         for way in (self.slowly, *self.others))
        for other in others:
            for table in ("requests", "journeys", "replicas", "lifecycle"):
                np.testing.assert_array_equal(getattr(slow, table), getattr(other, table), err_msg=f"{seed}: {table}")
            assert test_failures.shown(slow.iterations) == test_failures.shown(other.iterations)
            assert (slow.token_times, slow.gaps) == (other.token_times, other.gaps)

    def assert_same_moves(self, scene, caching, seed):
        """Check requests that are moved; scene : of test_migration."""
        requests, moves, plan, limits, setup = scene
        scene = requests, moves, plan, self.parameters(Random(seed), limits), setup
        slow, *others = (test_migration.run(scene, scheduler=self.scheduler, enable_prefix_caching=caching, **way)
                         for way in (self.slowly, *self.others))
        for other in others:
            test_migration.assert_same(slow, other)

    def assert_same_routes(self, name, seed):
        """Check what a router of `test_views.FRONTS` leads to."""
        scenario, replicas = self.long_scenario(seed)
        router = registry.load("router", name)
        front = GatewayPlan(router, router.Parameters(**test_views.FRONTS[name]))
        slow, *others = (self.run(scenario, replicas=max(replicas, 2), front=front, **way).requests
                         for way in (self.slowly, *self.others, {"coupled": True}))
        for other in others:
            np.testing.assert_array_equal(slow, other)


def assert_same_experiment(folder, seed, lines, without=()):
    """Check a random experiment of a whole cluster; `lines` : (rng) -> those of its scheduler; without : keys."""
    rng = Random(seed)
    (folder / "requests.csv").write_text(requests_of(rng))
    own = lines(rng)
    others = [line for line in experiment_of(rng).splitlines() if not line.startswith((*OF_VLLM, *without))]
    (folder / "experiment.toml").write_text("\n".join([*own, *others]))

    one, other = (simulator.run(folder / "experiment.toml", {"engine.fast_forward": fast}) for fast in (True, False))

    np.testing.assert_array_equal(one.requests, other.requests)
    np.testing.assert_array_equal(one.lifecycle, other.lifecycle)
    assert one.summary["itl_ms"] == other.summary["itl_ms"]
