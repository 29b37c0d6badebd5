"""The load of grammar compilers: structured outputs of the vocabulary of the model, and notes where they saturate."""
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from simulator.assembly.site import Site
from simulator.domain.grammar_times import beyond
from simulator.errors import number_of
from simulator.scheduling.grammar_draws import compile_ns
from simulator.workload.base import Workload

BUSY = 0.7                      # of the compilers' time: beyond, requests wait for others' grammars
OLD = ("grammars: compile as in published times of xgrammar 0.1.10, 0.54 s in the median and 4.1 s on average: "
       "engine.structured_outputs.kind and size give those measured with 0.2.8, of milliseconds")
PROMPTS = ("both", "prefill")   # roles of pools in which requests wait for their grammars first


def with_vocabulary(site: Site) -> Any:
    """Return the parameters of an engine, with its model's vocabulary for grammars."""
    parameters, given = site.pool.engine.parameters, structured_outputs(site)
    if given is None or given.kind is None or given.vocabulary is not None or site.model is None:
        return parameters
    return replace(parameters, structured_outputs=replace(given, vocabulary=site.model.vocab_size))


def with_grammar_notes(workload: Workload, sites: Sequence[Site], seed: int) -> Workload:
    """Return the requests, with notes on compilations for the diagnosis."""
    if "grammar" not in workload.labels:
        return workload
    found = [site for site in sites if structured_outputs(site) is not None and site.pool.role in PROMPTS]
    notes = dict.fromkeys(note for site in found for note in _notes(workload, site, len(found), seed))
    return replace(workload, notes=(*workload.notes, *notes)) if notes else workload


def structured_outputs(site: Site) -> Any:
    """Return [engine.structured_outputs] of a pool; None: it has none."""
    return getattr(site.pool.engine.parameters, "structured_outputs", None)


def _notes(workload: Workload, site: Site, num_pools: int, seed: int) -> Iterator[str]:
    given = with_vocabulary(site).structured_outputs
    yield from given.notes_on(max(compile_ns(given, len(workload.labels["grammar"]), seed), default=0))
    if given.grammar is None and given.compile_ms is None and given.compiler == "xgrammar":
        yield OLD
    if given.grammar is not None and (excess := beyond(given.grammar)):
        yield (f"grammars: {excess}: the time to compile is extrapolated in proportion; tools/grammar_times.py "
               "measures it")
    load = _load(workload, site, given, num_pools, seed)
    if load is not None and load > BUSY:
        replicas, threads = _replicas(site), given.workers
        verb = "saturates: requests wait the longer, the later they come" if load >= 1 else "delays requests"
        yield (f"grammars: compilation {verb}: new grammars take {load:.0%} of the time of "
               f"{number_of(replicas * threads, 'worker')} ({threads} for {given.cpus} CPUs on each of "
               f"{number_of(replicas, 'replica')}) while requests arrive")


def _load(workload: Workload, site: Site, given: Any, num_pools: int, seed: int) -> float | None:
    """Return the time that grammars take, as a share of the workers' while requests arrive; None: not known.

    Of the replicas of all pools, each compiles a grammar that one of its requests has; requests are taken to be spread
    evenly at random.
    """
    arrivals, codes = workload.requests["arrival_ns"], workload.demands["grammar"]
    span_ns = int(arrivals.max() - arrivals.min()) if len(arrivals) else 0
    if not given.workers or span_ns <= 0:
        return None
    counts = np.bincount(codes[codes >= 0], minlength=len(workload.labels["grammar"]))
    replicas = _replicas(site) * num_pools
    compiled = replicas * (1.0 - (1.0 - 1.0 / replicas) ** counts)         # replicas with a request of each grammar
    return float(compiled @ compile_ns(given, len(counts), seed)) / (replicas * given.workers * span_ns)


def _replicas(site: Site) -> int:
    return max(site.pool.at_start * site.pool.topology.data_parallel, 1)
