"""What routers that see KV tiers, and replicas that have some, say together."""
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from simulator import registry
from simulator.config.layers import Path
from simulator.config.words import show

Fault = tuple[Path, str]


def lookers(cluster) -> Iterator[tuple[Path, type, Any]]:
    """Yield (path, class, parameters) of each router and scorer of [cluster]."""
    chosen = cluster.disaggregation
    tables = {("cluster", "routing"): cluster.routing,
              ("cluster", "disaggregation", "prefill"): chosen and chosen.prefill,
              ("cluster", "disaggregation", "decode"): chosen and chosen.decode}
    for path, routing in tables.items():
        if routing is None:
            continue
        yield path, registry.load("router", routing.policy), routing.parameters
        for i, scorer in enumerate(routing.scorers):
            yield (*path, "scorers", i), registry.load("scorer", scorer.name), scorer.parameters


def tier_faults(cluster, tiers: Sequence) -> Iterator[Fault]:
    """Refuse weights of what no tier keeps.

    tiers : [kv_tiers] of each pool; None: it has none.
    """
    if any(each is not None for each in tiers):
        return
    for path, kind, parameters in lookers(cluster):
        for field in msgspec.structs.fields(parameters) if kind.tier_keys else ():
            found = getattr(parameters, field.name)
            if field.name in kind.tier_keys and found != field.default:
                yield (*path, field.name), (
                    f"expected none without [kv_tiers], found {show(found)}: it weighs what tiers keep, and there are "
                    "none")


def group_faults(cluster, pool, layers) -> Iterator[str]:
    """Refuse a pool whose tier would have to be seen and cannot be.

    layers : LayerGroups of the pool, once they are known; None: its layers share one block table.
    """
    if pool.kv_tiers is None or layers is None or layers.is_even:
        return
    for path, kind, parameters in lookers(cluster):
        if kind.sees_tiers(parameters):
            way = f", or {' = '.join(kind.tier_keys)} = 0" if kind.tier_keys else ""
            yield (f"kv_tiers: expected none{way}, since {'.'.join(map(str, path))} chooses by what tiers hold: of "
                   "layers with block tables of their own that is known where blocks are of one size and some layers "
                   "have full attention")
            return
