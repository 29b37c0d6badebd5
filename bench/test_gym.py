"""Decisions a second of policies that learn: linear ones in the compiled router, agents in an environment."""
import time
from statistics import median

import pytest
from pairs import cpu_s

import simulator
from simulator.gym import linear_router

ROUNDS, NUM_REQUESTS, NUM_STEPS = 5, 200_000, 5_000
FLEET = """
topology = {replicas = 8}
engine = {num_gpu_blocks = 4000, max_model_len = 4096}
latency = {backend = "linear"}
[workload]
type = "synthetic"
prompt_tokens = {distribution = "constant", tokens = 64}
output_tokens = {distribution = "constant", tokens = 20}
arrival = {process = "poisson", rate_per_s = 400.0}
"""
WEIGHTS = {
    "queue-depth and kv-utilization": {"queue-depth": 2.0, "kv-utilization": 1.0},
    "active-requests and prefix-affinity": {"active-requests": 3.0, "prefix-affinity": 1.0},
}
pytestmark = pytest.mark.benchmark(group="gym", timer=time.process_time)


@pytest.fixture
def fleet(tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text(FLEET)
    return path


@pytest.mark.parametrize("name", WEIGHTS)
def test_linear_policy(name, benchmark, fleet, report):
    overrides = {"workload.num_requests": NUM_REQUESTS, **linear_router(WEIGHTS[name])}
    spent_s = []

    benchmark.pedantic(lambda: spent_s.append(cpu_s(lambda: simulator.run(fleet, overrides, threads=1))), rounds=ROUNDS)

    rate = NUM_REQUESTS / median(spent_s)
    report.add(f"linear policy, {name}, 8 replicas", f"{rate:,.0f} decisions/s", ">= 100,000",
               "one core; with the engines of the replicas, outputs of 20 tokens")


@pytest.mark.parametrize("sees_caches", [False, True])
def test_steps_of_an_agent(sees_caches, benchmark, fleet, report):
    pytest.importorskip("gymnasium", reason="environments need the extra `gym`")
    from simulator.gym import RouterEnv

    environment, spent_s = RouterEnv(fleet, {"workload.num_requests": NUM_STEPS}, sees_caches=sees_caches), []

    def play():
        has_ended, action = False, 0
        while not has_ended:
            has_ended, action = environment.step(action)[2], (action + 1) % 8

    def measure():
        environment.reset(seed=1)
        spent_s.append(cpu_s(play))

    benchmark.pedantic(measure, rounds=ROUNDS)
    report.add(f"steps of an agent, caches {'seen' if sees_caches else 'not seen'}",
               f"{NUM_STEPS / median(spent_s):,.0f} steps/s", "", "one core, 8 replicas, without the agent's own time")
