"""Notes on tables of [cluster] that act on nothing in a run."""
from collections.abc import Iterator

from simulator.domain.failures import Health
from simulator.workload.base import Workload


def idle_notes(experiment, workload: Workload) -> tuple[str, ...]:
    """Return a note on each."""
    return (*_health(experiment), *_headroom(experiment.cluster, workload))


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
