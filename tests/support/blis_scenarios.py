"""Random scenarios under `scheduler = "blis"`: those for vLLM's, with BLIS's options."""
from dataclasses import replace
from random import Random

from simulator.scheduling.blis import BlisParameters
from support.random_scenarios import random_description
from support.scenario import load
from support.traffic import random_traffic

TOKENS_OF_FEW_BLOCKS = 1100


def small_scenario(seed):
    """Return a `Scenario` of up to 16 requests."""
    return _scenario(random_description(seed, beyond_vllm=True), Random(f"{seed}: blis"))


def long_scenario(seed):
    """Return (a `Scenario` of 120 requests with long outputs, in most of which blocks run out; replicas)."""
    rng, (description, replicas) = Random(f"{seed}: blis"), random_traffic(seed)
    if rng.random() < 0.6:
        description["options"]["num_blocks"] = 1 + TOKENS_OF_FEW_BLOCKS // description["options"]["block_size"]
    return _scenario(description, rng), replicas


def parameters_of(rng, max_num_seqs, max_num_batched_tokens):
    """Draw BLIS's other options; `upstream_compat` has no group."""
    return BlisParameters(
        max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens,
        long_prefill_token_threshold=rng.choice([0, 0, 7, 40]),
        policy=rng.choice(["fcfs", "fcfs", "priority-fcfs", "sjf", "reverse-priority"]),
        preemption_policy=rng.choice(["fcfs", "priority"]),
        priority_policy=rng.choice(["class", "constant", "slo-based", "inverted-slo"]),
        blis_version=rng.choice(["0.7", "head"]))


def _scenario(description, rng):
    options = description["options"]
    options["enable_prefix_caching"] = rng.random() < 0.8
    if rng.random() < 0.3:
        for request in description["requests"]:
            request["prompt"] = [["uniq", max(request["prompt"][-1][-1], 1)]]
    parameters = parameters_of(rng, options["max_num_seqs"], options["max_num_batched_tokens"])
    return replace(load(description), parameters=parameters)
