"""Whole runs behind routers: against round robin on equal requests, with growing numbers of replicas; memory."""
import time
from dataclasses import replace
from statistics import median

import pytest
from cases import Case, Prepared
from msgspec import structs
from pairs import repeated_cpu_s
from test_memory import experiment, provenance_of_run

from simulator import registry
from simulator.engine.plan import GatewayPlan

ROUNDS = 5
COUPLED = {"coupled": True}         # round robin with replicas kept up to date, as routers that read them need
pytestmark = pytest.mark.benchmark(group="cluster", timer=time.process_time)


def front(policy, scorers=(), **keys):
    """Return the gateway's plan: a router by its name, and its scorers with their weights."""
    kind = registry.load("router", policy)
    chosen = [(registry.load("scorer", name), weight) for name, weight in scorers]
    return GatewayPlan(
        kind, kind.Parameters(**keys), tuple((each, weight, each.Parameters()) for each, weight in chosen))


PLAIN = Case(400_000, 64)
# System prompts and blocks as in "system prompts" of test_kv.
SHARED = Case(200_000, 64, rate_per_s=16.0, system_prompts=(8, 512), num_gpu_blocks=8000)
AFFINITY = front("weighted", (("prefix-affinity", 3.0), ("queue-depth", 2.0)))
ROUTERS = {     # name: case, gateway's plan, target against round robin
    "least_loaded": (PLAIN, front("least_loaded"), "<= 1.5 x"),
    "least_loaded, effective": (PLAIN, front("least_loaded", metric="effective"), "<= 1.5 x"),
    "weighted, queue-depth": (PLAIN, front("weighted", (("queue-depth", 1.0),)), ""),
    "weighted, prefix-affinity and queue-depth": (SHARED, AFFINITY, "<= 6 x"),
}
LOOKING = {     # name: gateway's plan; all read states or caches of replicas with system prompts
    "least_loaded by waiting": front("least_loaded", metric="waiting"),
    "least_loaded by kv": front("least_loaded", metric="kv"),
    "vllm_dp": front("vllm_dp"),
    "llumnix": front("llumnix"),
    "llumnix, cache-aware": front("llumnix", enable_cache_aware_scheduling=True),
    "weighted, the defaults of llm-d": front("weighted", profile="llm-d"),
    "cache_aware": front("cache_aware"),
    "kvaware": front("kvaware"),
    "dynamo": front("dynamo"),
    "dynamo, seen 1 ms late": structs.replace(front("dynamo"), snapshot_interval_ns=10**6, cache_delay_ns=10**6),
    "dynamo, seen 0.1 s late": structs.replace(front("dynamo"), snapshot_interval_ns=10**8, cache_delay_ns=10**8),
    "dynamo, seen 1 s late": structs.replace(front("dynamo"), snapshot_interval_ns=10**9, cache_delay_ns=10**9),
}
SERIES = {      # name: case, requests at each replica, target
    "least_loaded, 4 to 512 replicas": (replace(PLAIN, front=front("least_loaded")), 2000, "<= 1.3 x"),
    "round robin kept up to date, 4 to 512 replicas": (replace(PLAIN, engine=COUPLED), 2000, ""),
    "weighted, 4 to 512 replicas": (replace(SHARED, front=AFFINITY), 500, "<= 1.3 x"),
    "round robin kept up to date, system prompts, 4 to 512 replicas": (replace(SHARED, engine=COUPLED), 500, ""),
    "round robin, system prompts, 4 to 512 replicas": (SHARED, 500, ""),
}
ROUTINGS = {
    "least_loaded": {"policy": "least_loaded"},
    "weighted": {"policy": "weighted", "scorers": [{"name": "prefix-affinity", "weight": 3.0},
                                                   {"name": "queue-depth", "weight": 2.0}]},
}


def medians_s(cases, benchmark):
    """Return the CPU time of each case, run in turns, and the cases after their runs."""
    prepared = [Prepared(case) for case in cases]
    rounds = []
    benchmark.pedantic(lambda: rounds.append([repeated_cpu_s(each) for each in prepared]), rounds=ROUNDS)
    return [median(times) for times in zip(*rounds, strict=True)], prepared


@pytest.mark.parametrize("name", ROUTERS)
def test_router_against_round_robin(name, benchmark, report):
    case, chosen, target = ROUTERS[name]

    (routed_s, sliced_s, coupled_s), prepared = medians_s(
        [replace(case, front=chosen), case, replace(case, engine=COUPLED)], benchmark)

    assert all(each.means_ms()[1] > 0 for each in prepared)     # and all requests completed
    assert prepared[1].means_ms() == prepared[2].means_ms()
    ns = 1e9 / case.num_requests
    report.add(f"{name}, 64 replicas", f"{routed_s / sliced_s:.2f} x round robin", target,
               f"{routed_s / coupled_s:.2f} x with replicas kept up to date; ns a request: "
               f"{routed_s * ns:.0f}, {sliced_s * ns:.0f}, {coupled_s * ns:.0f}; iterations: "
               + ", ".join(f"{each.total('iterations'):,}" for each in prepared))


@pytest.mark.parametrize("rate_per_s", [16.0, 2.0])
@pytest.mark.parametrize("replicas", [64, 512])
@pytest.mark.parametrize("name", LOOKING)
def test_routers_that_look(name, replicas, rate_per_s, benchmark, report):
    case = replace(SHARED, replicas=replicas, num_requests=60 * replicas, rate_per_s=rate_per_s)

    seconds, _ = medians_s([replace(case, front=LOOKING[name]), replace(case, engine=COUPLED)], benchmark)

    routed_ns, coupled_ns = (1e9 * each / case.num_requests for each in seconds)
    benchmark.extra_info["ns_per_request"] = round(routed_ns, 1)
    report.add(f"{name}, {replicas} replicas, {rate_per_s:g}/s at each", f"{routed_ns / coupled_ns:.2f} x",
               "", f"round robin kept up to date; ns a request: {routed_ns:.0f}, {coupled_ns:.0f}")


@pytest.mark.parametrize("name", SERIES)
def test_cost_of_a_request_as_replicas_become_more(name, benchmark, report):
    case, each, target = SERIES[name]
    cases = [replace(case, replicas=replicas, num_requests=each * replicas) for replicas in (4, 64, 512)]

    seconds, _ = medians_s(cases, benchmark)

    ns = [1e9 * time_s / case.num_requests for time_s, case in zip(seconds, cases, strict=True)]
    benchmark.extra_info["ns_per_request"] = [round(each, 1) for each in ns]
    report.add(name, f"{ns[-1] / ns[0]:.2f} x", target, "ns a request: " + ", ".join(f"{each:.0f}" for each in ns))


@pytest.mark.parametrize("name", ROUTINGS)
def test_memory_of_a_million_requests_over_512_replicas(name, benchmark, report, tmp_path):
    large = experiment(1_000_000) | {"topology": {"replicas": 512}, "cluster": {"routing": ROUTINGS[name]}}
    large["engine"] |= {"num_gpu_blocks": 28_000}       # Llama-3.1-8B on an H100
    large["workload"] |= {"arrival": {"rate_per_s": 16.0 * 512},
                          "system_prompts": {"num_tokens": 512, "num_prompts": 8}}

    found = benchmark.pedantic(provenance_of_run, (large, tmp_path))

    timings = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in found["timings_s"].items())
    report.add(f"{name}, 1M requests over 512 replicas", f"{found['peak_memory_bytes'] / 1e9:.2f} GB", "< 4 GB",
               timings)
