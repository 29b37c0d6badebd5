"""Grammars that engines add to requests, and requests that engines cannot serve."""
from collections.abc import Iterator
from typing import Any

from simulator import registry
from simulator.config.experiment import Experiment
from simulator.engine.accepting import missing_texts
from simulator.errors import InputErrors, KeyFault
from simulator.workload.base import Workload
from simulator.workload.grammars import with_grammars


def meet(experiment: Experiment, workload: Workload) -> Workload:
    """Return the requests as the engines of all pools take them.

    Raises
    ------
    InputErrors
        Pools with different grammars, missing texts of requests, images that an engine cannot encode.
    """
    tables = [getattr(pool.engine.parameters, "structured_outputs", None) for pool in experiment.all_pools()]
    workload = with_grammars(workload, tables, experiment.seed)
    faults = [f"{f'pools.{pool.name}.' if experiment.pools else ''}engine.{fault}"
              for pool in experiment.all_pools() for fault in _faults(pool, workload)]
    if workload.items is None:
        faults += [f"pools.{pool.name}.role: expected no encode pool: no prompt of this workload has an image; see "
                   "[workload.images]" for pool in experiment.encode_pools()]
    if faults:
        raise InputErrors(map(KeyFault, faults))
    return workload


def _faults(pool: Any, workload: Workload) -> Iterator[str]:
    """Yield the settings of an engine that match no request, and the requests that it cannot serve."""
    scheduler, parameters = registry.load("scheduler", pool.engine.scheduler), pool.engine.parameters
    speculative = scheduler.facts(parameters).speculative
    if speculative is not None and speculative.by_text:
        for fault in missing_texts(speculative, workload):
            yield f"speculative.by_text: {fault}"
    for key, message in (*scheduler.item_faults(parameters, workload.items),
                         *scheduler.label_faults(parameters, workload.labels)):
        yield f"{key}: {message}"
