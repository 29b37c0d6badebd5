"""Roles of pools: rows of the table of conflicts, and keys that only pools for prefill and decode use."""
from collections.abc import Iterator

from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature, without
from simulator.config.layers import Path
from simulator.config.words import show

CONFLICTS = (
    Conflict(has.SPLIT_WISE, without(has.ROLES), "it takes turns among prefill replicas and among decode replicas; "
             '"round_robin" takes turns among all'),
    Conflict(Feature("Llumnix's types of replicas", "cluster.routing.infer_types[].infer_type", "neutral"),
             without(has.ROLES), "no replica is of another type"),
    Conflict(Feature("saturation of all legs", "cluster.gateway_queue.saturation_legs", "first"), without(has.ROLES),
             "requests have one leg"),
    Conflict(Feature("schedulers of prefill or decode pools", "engine.scheduler", value=lambda place: (
        not place.path and place.facts.why_no_both and place.engine.scheduler)), without(has.ROLES),
        lambda place: place.facts.why_no_both, '"split_wise" has replicas for prompts and replicas for decodes'),
    Conflict(has.WHOLE_POOL, has.SCHEDULER, lambda place: place.facts.why_no_both,
             '"split_wise" has replicas for prompts and replicas for decodes'),
)


def role_faults(cluster) -> Iterator[tuple[Path, str]]:
    """Refuse keys of a policy that only prefill and decode pools use."""
    for table in cluster.__struct_fields__:
        parameters = getattr(getattr(cluster, table), "parameters", None)
        for name in getattr(parameters, "FOR_ONE_PHASE", ()):
            mode = {"mode": parameters.mode} if hasattr(parameters, "mode") else {}
            usual, given = getattr(type(parameters)(**mode), name), getattr(parameters, name)
            if given != usual:
                yield ("cluster", table, name), (
                    f'expected its default, {show(usual)}, found {show(given)}: there is no pool with role = "prefill" '
                    'or "decode", and nothing else uses it')
