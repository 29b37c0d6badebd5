"""`vllm_dp` scores the engines that changed; it decides as a scan of all of them does."""
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

import simulator
from invariants.test_lookahead import front
from invariants.test_pipeline_conservation import requests_of
from invariants.test_rare_looks import in_step
from invariants.test_whole_cluster import experiment_of
from simulator.routing.python_router import PythonRouter
from support.engine import run
from support.scenario import load
from support.traffic import random_traffic

MS = 1_000_000


class Scan(PythonRouter):
    """Scores all engines each time, as vLLM 0.32 does."""

    def __init__(self, parameters, context):
        super().__init__(parameters, context)
        self._first, self._added = 0, np.zeros(self.num_replicas, int)
        self._seen_ns = np.zeros(self.num_replicas, np.int64)

    def choose(self, request, now_ns):
        """Take the lowest score, the first one met from the place where the scan starts."""
        is_open = self.accounts["is_routable"] != 0
        is_new = is_open & (self.states["time_ns"] != self._seen_ns)
        self._added[is_new] = 0
        self._seen_ns[is_new] = self.states["time_ns"][is_new]
        waiting = self.states["waiting"] + self._added
        usage = self.states["used_blocks"] / np.maximum(self.states["num_blocks"], 1)
        scores = np.maximum(self.accounts["in_flight"], waiting + self.states["running"]).astype(float)
        scores = np.where((waiting > 0) & (usage > 0.5), scores + waiting * 6.0 * (usage - 0.5), scores)
        scores[~is_open] = np.inf
        order = np.roll(np.arange(self.num_replicas), -self._first)
        self._first = (self._first + 1) % self.num_replicas
        return int(order[np.argmin(scores[order])]) if is_open.any() else None

    def on_sent(self, request, replica, now_ns):
        """Count it as waiting until the engine reports again."""
        self._added[replica] += 1


@pytest.mark.parametrize("most", [None, 2, 8])
@pytest.mark.parametrize("traffic", [lambda seed: random_traffic(20_000 + seed)[0], in_step])
@pytest.mark.parametrize("seed", range(25))
def test_it_decides_as_a_scan_does(seed, traffic, most):
    rng, description = Random(seed), traffic(seed)
    replicas, ages_ns = rng.choice([2, 3, 9]), rng.choice([0, 0, 1, 7 * MS, 300 * MS])
    description["options"]["num_blocks"] = 1 + 1100 // description["options"]["block_size"]
    fast = replace(front("vllm_dp", most=most), snapshot_interval_ns=ages_ns)
    plain = replace(fast, router=Scan, router_parameters=None)
    ours, expected = (run(load(description), details=False, replicas=replicas, front=each) for each in (fast, plain))

    np.testing.assert_array_equal(ours.requests, expected.requests)


@pytest.mark.parametrize("seed", range(60))
def test_so_it_does_where_replicas_fail_and_requests_move(seed, tmp_path):
    rng = Random(23_000 + seed)
    (tmp_path / "requests.csv").write_text(requests_of(rng))
    (tmp_path / "experiment.toml").write_text(experiment_of(rng))
    ours, expected = (
        simulator.run(tmp_path / "experiment.toml", {"cluster.routing.policy": policy})
        for policy in ("vllm_dp", "invariants.test_vllm_dp:Scan"))

    np.testing.assert_array_equal(ours.requests, expected.requests)
