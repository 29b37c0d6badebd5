"""Contradictions between KV tiers and the routers that look up their content."""
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from simulator import registry
from simulator.config.layers import Path
from simulator.config.scorers import routing_tables
from simulator.config.words import show

Fault = tuple[Path, str]


def lookers(cluster) -> Iterator[tuple[Path, type, Any]]:
    """Yield (path, class, parameters) of each router and scorer of [cluster]."""
    for path, routing in routing_tables(cluster):
        yield path, registry.load("router", routing.policy), routing.parameters
        for i, scorer in enumerate(routing.scorers):
            yield (*path, "scorers", i), registry.load("scorer", scorer.name), scorer.parameters


def tier_faults(cluster, tiers: Mapping[Path, Any], engines: Mapping[Path, Any]) -> Iterator[Fault]:
    """Refuse routers that look up absent tiers, and migration that leaves KV behind.

    tiers : [kv_tiers] of the experiment, or of each pool, by its path; None: there is none.
    engines : [engine] of the experiment, or of each pool, by the path of its tiers.
    """
    tiers = {path: tier for path, tier in tiers.items() if tier is not None}
    if tiers and cluster.rescheduling is not None:
        yield ("cluster", "rescheduling"), ("expected none with [kv_tiers]: the KV in a replica's tier does not "
                                            "follow a migrating request")
    for path, tier in tiers.items():
        protocol = registry.load("kv_tier", tier.protocol)
        why = protocol.why_unseen or protocol.unseen_with.get(engines[path].scheduler)
        looker = _first_looker(cluster)
        if why and looker:
            yield (*path, "protocol"), (
                f'expected another{looker.way}, found "{tier.protocol}": {looker.name} chooses by the content of '
                f"tiers, but cannot see this one: {why}")
    if tiers:
        return
    for path, kind, parameters in lookers(cluster):
        for field in msgspec.structs.fields(parameters) if kind.tier_keys else ():
            found = getattr(parameters, field.name)
            if field.name in kind.tier_keys and found != field.default:
                yield (*path, field.name), (
                    f"expected none without [kv_tiers], found {show(found)}: it weighs the content of tiers, and there "
                    "are none")


def group_faults(cluster, pool, layers) -> Iterator[str]:
    """Refuse a pool with a KV tier that a router needs to look up but cannot.

    layers : LayerGroups of the pool, once they are known; None: its layers share one block table.
    """
    looker = _first_looker(cluster)
    if looker and not (pool.kv_tiers is None or layers is None or layers.is_even):
        yield (f"kv_tiers: expected none{looker.way}, since {looker.name} chooses by the content of tiers: for layers "
               "with separate block tables it is known only if blocks have one size and some layers have full "
               "attention")


class _Looker(NamedTuple):
    """name : of the first policy that looks up tiers. way : the alternative, for the message."""

    name: str
    way: str


def _first_looker(cluster) -> _Looker | None:
    for path, kind, parameters in lookers(cluster):
        if kind.sees_tiers(parameters):
            way = f", or {' = '.join(kind.tier_keys)} = 0" if kind.tier_keys else ""
            return _Looker(".".join(map(str, path)), way)
    return None
