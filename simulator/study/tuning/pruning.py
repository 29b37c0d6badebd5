"""Candidates ruled out without a run: forbidden layouts, no room for KV, a bound below the best value.

The throughput bound: an iteration gives a sequence one token at most (1 + drafts with speculation), so a replica
gives no more tokens a second than b / t(b), the largest over batches of b sequences with one token of context each.
Prompts, contexts, queues and the host only add time. The bound holds where more work takes more time, so it is used
with the backends `BOUNDED` alone: in tables of measured kernels a larger batch may be faster than a smaller one.
"""
from collections.abc import Callable

import numpy as np

from simulator.assembly.latency import latency_model
from simulator.assembly.site import Site, sites_of
from simulator.config.experiment import Experiment
from simulator.errors import InputErrors
from simulator.study.sweep.bench import num_gpus
from simulator.study.tuning.candidates import FORBIDDEN, Candidate, Dropped
from simulator.study.tuning.objectives import Objective
from simulator.study.tuning.tune_table import CAPACITY, Question

MEMORY, BOUND = "memory", "bound"
BOUNDED = ("linear", "roofline")
OUTPUT, OUTPUT_PER_GPU = "output_throughput", "output_throughput_per_gpu"
MOST_SEQUENCES = 1 << 14        # largest batch for which the bound is computed


def why_not(candidate: Candidate) -> Dropped | None:
    """Return why a candidate cannot run, by layout and memory plan; None: it can."""
    faults, kind = [], MEMORY
    for site in sites_of(candidate.experiment):
        try:
            site.check()
        except InputErrors as errors:
            faults += errors.faults
            if not all(fault.startswith(f"{site.prefix}engine.num_gpu_blocks") for fault in errors.faults):
                kind = FORBIDDEN
    return Dropped(candidate, kind, "; ".join(faults)) if faults else None


def bound_of(question: Question) -> Callable[[Candidate], float] | None:
    """Return a function that bounds the objective from above; None: no valid bound.

    None for several objectives, for an objective that is no output throughput, for a changing number of replicas, and
    for values with intervals: a candidate behind by less than its interval may win by fewer GPUs.
    """
    given, base = question.settings, question.study.base
    has_intervals = given.epsilon == "ci" and (len(question.study.seeds) > 1 or given.load == CAPACITY)
    if len(question.objectives) != 1 or has_intervals or base.autoscaling is not None:
        return None
    objective = question.objectives[0]
    if not _is_bounded(objective):
        return None
    per_gpu = objective.key == OUTPUT_PER_GPU

    def bound(candidate: Candidate) -> float:
        most = most_tokens_per_s(candidate.experiment)
        return most / num_gpus(candidate.experiment) if per_gpu else most

    return bound


def _is_bounded(objective: Objective) -> bool:
    return objective.key in (OUTPUT, OUTPUT_PER_GPU) and objective.is_larger_better


def most_tokens_per_s(experiment: Experiment) -> float:
    """Return an upper bound of output tokens a second; inf: no limit is known."""
    return sum(map(_of_pool, sites_of(experiment)))


def _of_pool(site: Site) -> float:
    pool, facts = site.pool, site.scheduler_facts
    known = (pool.latency.backend in BOUNDED and pool.topology.pipeline_parallel == 1
             and facts.max_running and facts.max_running <= MOST_SEQUENCES and not pool.latency.uncertainty)
    if not known:
        return float("inf")
    replicas = pool.topology.replicas if pool.replicas is None else pool.replicas
    return replicas * pool.topology.data_parallel * _of_rank(site)


def _of_rank(site: Site) -> float:
    facts, model = site.scheduler_facts, latency_model(site)
    tokens = 1 + (facts.speculative.num_tokens if facts.speculative else 0)
    rates = [size * tokens / seconds if (seconds := model.predict([], [tokens] * size, tokens)) > 0 else float("inf")
             for size in range(1, facts.max_running + 1)]
    return float(np.max(rates))
