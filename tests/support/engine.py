"""Run a scenario on the engine."""
from dataclasses import replace

from simulator import debug
from simulator.engine.build import EngineSetup, Policies
from simulator.latency.linear import Linear
from simulator.routing.round_robin import RoundRobin, RoundRobinParameters
from simulator.scheduling.vllm import Vllm


def record(workload, parameters, latency, *, details=True, max_iterations=None, **setup):
    """Run a workload under vLLM's scheduler and round robin; `setup`: fields of EngineSetup."""
    setup = EngineSetup(**setup)
    policies = Policies(Vllm, parameters, latency, RoundRobin, RoundRobinParameters())
    return debug.record(workload, policies, setup, details=details, max_iterations=max_iterations)


def run(scenario, **options):
    """Return the engine's recording of a `Scenario`; options as `record` takes them, over those of the scenario."""
    latency = Linear(scenario.prices)
    latency.set_host(scenario.host.iteration_us, 0.0)
    workload = replace(scenario.workload, requests=scenario.workload.requests.copy())       # the engine writes to it
    return record(workload, scenario.parameters, latency, host=scenario.host, **(scenario.cache | options))
