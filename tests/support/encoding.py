"""Clusters some of whose replicas encode for the others."""
from random import Random

import numpy as np
from msgspec import structs
from msgspec.structs import replace

from simulator.domain.items import items_of
from simulator.engine.encoders.operation import Encoders
from simulator.engine.encoders.plan import EncodePlan, EncodePool
from simulator.latency.linear import Linear
from simulator.routing.policies.consistent_hash import ConsistentHash, ConsistentHashParameters
from simulator.routing.policies.least_loaded import LeastLoaded, LeastLoadedParameters
from simulator.routing.policies.power_of_two import PowerOfTwo, PowerOfTwoParameters
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from simulator.scheduling.vllm_tables import EncoderParameters
from support.hand_over import random_case as random_pair
from support.random_scenarios import random_description
from support.scenario import load

ROUTERS = ((RoundRobin, RoundRobinParameters()), (ConsistentHash, ConsistentHashParameters()),
           (LeastLoaded, LeastLoadedParameters(metric="tokens")), (LeastLoaded, LeastLoadedParameters()),
           (PowerOfTwo, PowerOfTwoParameters()))
SIZES = (1, 2, 7, 15, 30)


def random_case(seed, *, deadlines=True):
    """Return a workload with items, and what `support.hand_over.serve` takes for it besides.

    deadlines : some clients may give up.
    """
    rng = Random(seed)
    workload, case = random_pair(seed) if rng.random() < 0.4 else _whole_requests(seed, rng)
    if not deadlines:
        workload.demands["deadline_ns"] = -1
    encoder = rng.choice([None, EncoderParameters(cache_tokens=rng.choice([1, 30, 45, 200]))])
    case["parameters"] = structs.replace(case["parameters"], encoder=encoder, vllm_version="0.32",
                                         enable_chunked_prefill=True)
    return replace(workload, items=random_items(workload, rng)), case | {"encode": random_plan(rng), "seed": seed}


def _whole_requests(seed, rng):
    """Return a workload for replicas that do whole requests, and what `serve` takes for it."""
    description = random_description(seed, beyond_vllm=True)
    description["options"] |= {"num_speculative_tokens": 0, "spec_lookahead": 0, "enable_chunked_prefill": True}
    scenario = load(description)
    latency = Linear(scenario.prices)
    latency.set_host(scenario.host.iteration_us, 0.0)
    return scenario.workload, {"roles": (("both", rng.choice([1, 2, 3])),), "parameters": scenario.parameters,
                               "latency": latency, "cache": scenario.cache | {"host": scenario.host},
                               "split": None}


def random_items(workload, rng):
    """Return items in prompts, some of which show the same."""
    counts, contents, offsets, tokens = [], [], [], []
    for length in workload.requests["prompt_tokens"].tolist():
        at, first = rng.choice([0, 0, 1, 5]), len(tokens)
        while at < length and len(tokens) - first < 4 and rng.random() < 0.7:
            size = min(rng.choice(SIZES), length - at)
            contents.append(100 * rng.randint(0, 4) + size)         # what shows the same is as long
            offsets.append(at)
            tokens.append(size)
            at += size + rng.choice([0, 0, 1, 6])
        counts.append(len(tokens) - first)
    return items_of(*(np.array(each, np.int64) for each in (counts, contents, offsets, tokens)))


def random_plan(rng):
    """Return one or two encode pools, tight ones too."""
    pools = tuple(EncodePool(
        name=f"e{i}", model=None, replicas=rng.choice([1, 1, 2, 3]), embedding_ns=rng.choice([0.0, 1e5, 333_333.3]),
        iteration_ns=rng.choice([0.0, 0.0, 1e6]), max_embeddings=rng.choice([1, 20, 40, 100]),
        max_jobs=rng.choice([1, 2, 100]), cache_embeddings=rng.choice([1, 30, 60, 200]),
        embedding_bytes=rng.choice([1e3, 8192.0])) for i in range(rng.choice([1, 1, 2])))
    router, parameters = rng.choice(ROUTERS)
    return EncodePlan(pools, router, parameters, bytes_per_s=rng.choice([1e5, 1e7, 1e12]),
                      latency_ns=rng.choice([0, 0, 400_000]))


def encoders_of(outcome):
    """Return the Encoders of a run."""
    return next(each for each in outcome.cluster.operations if isinstance(each, Encoders))
