"""Notes on keys that act on nothing in a run, and on requests that no key acts on."""
from collections.abc import Iterator

import numpy as np

from simulator.domain.failures import Health
from simulator.workload.base import Workload


def idle_notes(experiment, workload: Workload) -> tuple[str, ...]:
    """Return a note on each."""
    found = (*_health(experiment), *_headroom(experiment.cluster, workload))
    if workload.chunks is not None or not len(workload):        # requests of streamed runs are not there yet
        return found
    return (*found, *_adapters(experiment, workload), *_names(experiment, workload), *_orders(experiment, workload))


def _health(experiment) -> Iterator[str]:
    is_noticed = any(each.kind in ("stop", "link") or each.on_failure == "migrate" for each in experiment.failures)
    if not is_noticed and experiment.cluster.health != Health():
        yield ("cluster.health has no effect: no [[failures]] stop a replica, take its link, or move its requests away "
               "(the operator of a live fleet may)")


def _headroom(cluster, workload: Workload) -> Iterator[str]:
    present = workload.demands["priority"]
    for name in ("routing", "rescheduling"):
        given = getattr(getattr(getattr(cluster, name, None), "parameters", None), "headroom", ())
        if absent := [str(each.priority) for each in given if not (present == each.priority).any()]:
            yield f"cluster.{name}.headroom has no effect for requests of priority {', '.join(absent)}: there are none"


def _adapters(experiment, workload: Workload) -> Iterator[str]:
    """Yield notes on adapters that pools do not load, and on pools without requests with adapters."""
    count = int((workload.demands["adapter"] >= 0).sum())
    pools = experiment.all_pools()
    lacking = sorted(each.name for each in pools if getattr(each.engine.parameters, "lora", None) is None)
    where = f"of pool {', '.join(lacking)} " * bool(experiment.pools)
    if count and lacking:
        yield (f"{count:,} requests have a LoRA adapter: replicas {where}without engine.lora neither load adapters nor "
               "take longer for them")
    if not count and len(lacking) < len(pools):
        yield "engine.lora has no effect: no request has an adapter"


def _names(experiment, workload: Workload) -> Iterator[str]:
    """Yield notes on SLO classes and tenants' budgets without a request."""
    classes = [each.name for each in experiment.slo.classes]
    budgets = [each.tenant for each in getattr(experiment.cluster.admission.parameters, "budgets", ())]
    for key, column, given in (("[[slo.classes]]", "slo_class", classes),
                               ("cluster.admission.budgets", "tenant", budgets)):
        if not given:
            continue
        labels = workload.labels.get(column, ())
        present = {labels[code] for code in np.unique(workload.demands[column]).tolist() if code >= 0}
        if absent := [name for name in given if name not in present]:
            yield f"{key}: no request is of {', '.join(absent)}"


def _orders(experiment, workload: Workload) -> Iterator[str]:
    """Yield notes on orders of requests by a property that no two requests differ in."""
    engines = [(pool.engine.scheduler, pool.engine.parameters) for pool in experiment.all_pools()]
    demands = workload.demands
    if any(scheduler == "edf" and given.default_deadline_ms is None for scheduler, given in engines) and (
            demands["due_ns"] < 0).all() and (demands["deadline_ns"] < 0).all():
        yield 'engine.scheduler = "edf" has no effect: no request has a deadline, and default_deadline_ms is not given'
    is_alike = (demands["priority"] == demands["priority"][0]).all() and not experiment.slo.classes
    if not is_alike or experiment.cluster.programs is not None or "slo_class" in workload.labels:
        return
    if any(scheduler == "vllm" and given.policy == "priority" for scheduler, given in engines):
        yield 'engine.policy = "priority" has no effect: all requests have one priority'
    if any(scheduler == "sglang" and given.enable_priority_scheduling for scheduler, given in engines):
        yield "engine.enable_priority_scheduling has no effect: all requests have one priority"
