"""`python -m simulator cache-bound EXPERIMENT.toml`: hits of the prefix cache beside the most that were possible."""
import argparse

import numpy as np

from simulator.api import run as run_experiment
from simulator.assembly.context import block_tokens
from simulator.assembly.requests import requests_of
from simulator.assembly.site import sites_of
from simulator.assembly.stays import stays_of
from simulator.config.experiment import Experiment
from simulator.config.load import load_experiment
from simulator.errors import InputErrors, faults_of
from simulator.results.summary import json_text
from simulator.study.cache_bound import bound_of
from simulator.study.telling.said import wrapped
from simulator.study.telling.screen import table_of

DONE = 0
MEANING = ("most: no policy finds more with as many blocks, for the admissions, ends and replicas of this run, which "
           "another policy would change; running requests take no room. no limit: nothing is ever evicted.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument("experiment", metavar="EXPERIMENT.toml")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="SECTION.KEY=VALUE",
                        help="override one value of the file; VALUE is TOML; repeatable")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")


def run(options: argparse.Namespace) -> int:
    """Run the experiment and print its hits beside the bound; return the exit status."""
    experiment = load_experiment(options.experiment, options.overrides, "--set")
    with faults_of(options.experiment):
        facts = facts_of(experiment)
    if options.json:
        print(json_text({"name": experiment.name, "seed": experiment.seed, **facts}), end="")
        return DONE
    query = facts["query_tokens"]
    rows = [[name, f"{facts[key]:,}", f"{facts[key] / query:.1%}" if query else ""] for name, key in (
        ("this run", "hit_tokens"), ("most", "most_hit_tokens"), ("no limit", "unlimited_hit_tokens"))]
    print(f"{experiment.name}, seed {experiment.seed}: {query:,} prompt tokens looked up\n")
    print(table_of([["", "tokens found", "of all"], *rows], left=(0,)))
    print("\n" + "\n".join(wrapped(MEANING)))
    return DONE


def facts_of(experiment: Experiment) -> dict[str, int]:
    """Return tokens looked up, found, and possible to find, of a run.

    Raises
    ------
    InputErrors
        The bound does not hold for such an experiment, or the experiment cannot be run.
    """
    _refuse(experiment)
    sites = sites_of(experiment)
    if any(site.layer_groups for site in sites):
        raise InputErrors(["cache-bound: blocks of one table expected, found layers of several kinds with a block "
                           "table each"])
    workload = requests_of(experiment)
    if workload.is_open_ended:
        raise InputErrors(["cache-bound: a given number of requests expected, found a closed loop that only a duration "
                           "bounds; give num_requests"])
    result = run_experiment(experiment, quiet=True, workload=workload)
    block_size, requests = block_tokens(experiment.all_pools()[0]), workload.requests
    blocks, stays = result.replicas["num_blocks"], stays_of(workload, block_size)
    bounds = [bound_of(stays[replica], int(blocks[replica])) for replica in sorted(stays)]
    chosen = np.flatnonzero(requests["scheduled_ns"] >= 0)
    return {"block_size": block_size, "query_tokens": int(requests["prompt_tokens"][chosen].sum(dtype=np.int64)),
            "hit_tokens": int(requests["cached_tokens"][chosen].sum(dtype=np.int64)),
            "most_hit_tokens": sum(bound.hits for bound in bounds) * block_size,
            "unlimited_hit_tokens": sum(bound.unlimited for bound in bounds) * block_size}


def _refuse(experiment: Experiment) -> None:
    """Refuse experiments for which the bound does not hold."""
    pools, cluster, faults = experiment.all_pools(), experiment.cluster, []
    if not all(pool.engine.enable_prefix_caching for pool in pools):
        faults.append("engine.enable_prefix_caching: expected true, found false: nothing is looked up")
    if len({block_tokens(pool) for pool in pools}) > 1:
        faults.append("engine.block_size: expected one for all pools: hits are counted in blocks")
    if any(pool.role != "both" for pool in pools):
        faults.append('pools: expected role = "both" alone: a request has blocks at one replica')
    if any(pool.engine.scheduler != "vllm" for pool in pools):
        faults.append('engine.scheduler: expected "vllm": other caches have blocks and hits of their own')
    for key, value in (("kv_tiers", any(pool.kv_tiers for pool in pools)), ("failures", experiment.failures),
                       ("autoscaling", experiment.autoscaling), ("cluster.rescheduling", cluster.rescheduling)):
        if value:
            faults.append(f"{key}: expected none: blocks come from elsewhere, or requests go elsewhere")
    if faults:
        raise InputErrors([f"cache-bound: {fault}" for fault in faults])
