"""The cost of a routing decision, over 64, 512 and 4,096 replicas, in a loop of a gateway without an engine."""
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
import pytest
from pairs import cpu_s

import simulator
from simulator import registry
from simulator.domain import records
from simulator.kv.content import Content
from simulator.routing.base import RoutingContext
from simulator.signals.view import View
from simulator.workload.build import build_workload
from simulator.workload.columns import Columns, Prompts, in_arrival_order

ROUNDS = 5
NUM_REQUESTS, SYSTEM_PROMPTS, SHARED_BLOCKS, BLOCK_SIZE = 40_000, 64, 32, 16     # more than are in flight at once
MEASURED = 20_000               # requests of a round
pytestmark = pytest.mark.benchmark(group="routing", timer=time.process_time)

AFFINITY_AND_QUEUE = (("prefix-affinity", 3.0), ("queue-depth", 2.0))
CASES = {       # name: policy, its keys, scorers, filters
    "random": ("random", {}, ()),
    "least_loaded": ("least_loaded", {}, ()),
    "least_loaded, effective": ("least_loaded", {"metric": "effective"}, ()),
    "power_of_two": ("power_of_two", {}, ()),
    "session": ("session", {}, ()),
    "vllm_dp": ("vllm_dp", {}, ()),
    "llumnix": ("llumnix", {}, ()),
    "weighted, queue-depth": ("weighted", {}, (("queue-depth", 1.0),)),
    "weighted, prefix-affinity and queue-depth": ("weighted", {}, AFFINITY_AND_QUEUE),
    "weighted, the defaults of llm-d": ("weighted", {"profile": "llm-d"}, ()),
    "weighted, llm-d-router with filters": ("weighted", {"profile": "llm-d-router"}, (), (
        ("prefix-affinity", {"block_tokens": 64}), ("utilization-detector", {}), ("slo-headroom-tier", {}))),
    "cache_aware": ("cache_aware", {}, ()),
    "prefix_threshold": ("prefix_threshold", {}, ()),
    "dynamo, approximate": ("dynamo", {"overlap": "approximate"}, ()),
    "dynamo, approximate, all compared": ("dynamo", {"overlap": "approximate", "prefill_weight": 0.3}, ()),
    "dynamo": ("dynamo", {}, ()),
    "kvaware": ("kvaware", {}, ()),
    "lor": ("lor", {}, ()),
    "prefixaware": ("prefixaware", {}, ()),
    "lmetric": ("lmetric", {}, ()),
    "manual": ("manual", {}, ()),
    "prefix_hash": ("prefix_hash", {}, ()),
    "bucket": ("bucket", {}, ()),
    "prefix_preble": ("prefix_preble", {}, ()),
    "least_busy_time": ("least_busy_time", {}, ()),
    "least_latency": ("least_latency", {}, ()),
    "least_throughput": ("least_throughput", {}, ()),
    "slo_least_load": ("slo_least_load", {}, ()),
    "slo_pack_load": ("slo_pack_load", {"cap": 100.0}, ()),
    "weighted_random": ("weighted_random", {}, ()),
    "litellm_latency": ("litellm_latency", {}, ()),
    "litellm_usage": ("litellm_usage", {}, ()),
    "waiting_limit": ("waiting_limit", {}, ()),
    "vtc": ("vtc", {}, ()),
}


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    """Return the module built from routing_loops.pyx, with the flags of a release."""
    folder = tmp_path_factory.mktemp("routing_loops")
    source = Path(__file__).with_name("routing_loops.pyx")
    shutil.copy(source, folder)
    package_parent = str(Path(simulator.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", source.name], cwd=folder, check=True,
        capture_output=True, env={**os.environ, "CFLAGS": "-O3 -ffp-contract=off", "PYTHONPATH": package_parent})
    [library] = folder.glob("*" + sysconfig.get_config_var("EXT_SUFFIX"))
    spec = importlib.util.spec_from_file_location("routing_loops", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def workload():
    """Return requests with one of 64 system prompts of 32 blocks, then 512 tokens of their own."""
    rows = np.arange(NUM_REQUESTS)
    shared = np.random.default_rng(1).integers(0, SYSTEM_PROMPTS, NUM_REQUESTS)
    streams = np.column_stack([records.named_stream(shared), records.own_stream(rows)]).ravel()
    tokens = np.full(2 * NUM_REQUESTS, SHARED_BLOCKS * BLOCK_SIZE)
    prompts = Prompts(np.full(NUM_REQUESTS, 2), streams, tokens)
    return build_workload(in_arrival_order(Columns(
        rows, np.full(NUM_REQUESTS, 2 * SHARED_BLOCKS * BLOCK_SIZE), np.ones_like(rows), prompts=prompts)))


def loop_of(loops, workload, num_replicas, policy, keys, scorers, filters=()):
    """Return a gateway with about eight requests in flight on each replica."""
    view = View(num_replicas)
    view.state_array["num_blocks"], view.state_array["block_size"] = 27_000, BLOCK_SIZE
    chosen = [(registry.load("scorer", name), weight) for name, weight in scorers]
    context = RoutingContext(view=view, workload=workload, content=Content(workload), block_size=BLOCK_SIZE,
                             scorers=tuple((kind, weight, kind.Parameters()) for kind, weight in chosen))
    first = [(registry.load("filter", name), parameters) for name, parameters in filters]
    context = msgspec.structs.replace(context, filters=tuple((kind, kind.Parameters(**keys)) for kind, keys in first))
    kind = registry.load("router", policy)
    return loops.GatewayLoop(kind(kind.Parameters(**keys), context), workload, 8 * num_replicas)


@pytest.mark.parametrize("num_replicas", [64, 512, 4096])
@pytest.mark.parametrize("name", CASES)
def test_routing_decision(name, num_replicas, benchmark, loops, workload, report):
    ours = loop_of(loops, workload, num_replicas, *CASES[name])
    plain = loop_of(loops, workload, num_replicas, "round_robin", {}, ())
    ours_s, plain_s = [], []
    for loop in (ours, plain):
        loop.run(NUM_REQUESTS)          # fill indices and caches

    def measure():
        plain_s.append(cpu_s(lambda: plain.run(MEASURED)))
        ours_s.append(cpu_s(lambda: ours.run(MEASURED)))

    benchmark.pedantic(measure, rounds=ROUNDS)
    ours_ns, plain_ns = (1e9 * median(each) / MEASURED for each in (ours_s, plain_s))
    benchmark.extra_info["ns_per_decision"] = round(ours_ns - plain_ns, 1)
    report.add(f"{name}, {num_replicas} replicas", f"{ours_ns / plain_ns:.1f} x round robin", "",
               f"{ours_ns:.0f} ns a request against {plain_ns:.0f} ns, bookkeeping of the gateway included")
