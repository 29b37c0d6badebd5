"""Run a scenario on the engine."""
from msgspec.structs import replace

from simulator.engine.plan import ClusterPlan, GatewayPlan, Pool
from simulator.latency.linear import Linear
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from simulator.scheduling.vllm import Vllm
from support import recording

# An experiment in which every iteration takes 10 ms, whatever is in it; the trace is beside it.
TEN_MS = """
engine = {num_gpu_blocks = 100, max_model_len = 1000, async_scheduling = false}
workload = {type = "trace", path = "trace.csv", time_origin = "trace"}
[latency]
backend = "linear"
base_us = 10_000.0
per_sequence_us = 0.0
per_prefill_token_us = 0.0
per_context_token_us = 0.0
"""


def record(workload, parameters, latency, *, details=True, max_iterations=None, **setup):
    """Run a workload under vLLM's scheduler and round robin; `setup`: fields of Pool and ClusterPlan."""
    return recording.record(
        workload, plan_of(parameters, latency, **setup), details=details, max_iterations=max_iterations)


def plan_of(parameters, latency, *, scheduler=Vllm, front=None, **setup):
    """Return the plan of a cluster of equal replicas; `setup`: fields of Pool and ClusterPlan."""
    of_pool = {name: setup.pop(name) for name in list(setup) if name in Pool.__struct_fields__}
    front = front or GatewayPlan(RoundRobin, RoundRobinParameters())
    return ClusterPlan((Pool(scheduler, parameters, latency, **of_pool),), front, **setup)


def run(scenario, *, layers=None, **options):
    """Return the engine's recording of a `Scenario`; options as `record` takes them, over those of the scenario.

    layers : of each pipeline stage; None: one stage.
    """
    latency = Linear(scenario.prices)
    latency.set_host(scenario.host.iteration_us, 0.0)
    if layers is not None:
        latency.set_stages(layers)
    for go_around in options.get("scheduler", Vllm).around(scenario.parameters, None):
        latency = go_around(latency)
    workload = replace(scenario.workload, requests=scenario.workload.requests.copy())       # the engine writes to it
    return record(workload, scenario.parameters, latency, host=scenario.host, tier=scenario.tier,
                  **(scenario.cache | options))
