"""Run a scenario on the engine."""
from dataclasses import replace

from simulator.engine.debug import record
from simulator.latency.linear import Linear


def run(scenario, **options):
    """Return the engine's recording of a `Scenario`; options as `record` takes them, over those of the scenario."""
    latency = Linear(scenario.prices)
    latency.set_host(scenario.host.iteration_us, 0.0)
    workload = replace(scenario.workload, requests=scenario.workload.requests.copy())       # the engine writes to it
    return record(workload, scenario.parameters, latency=latency, host=scenario.host, **(scenario.cache | options))
