"""Scorers of routers: the default scorers of a profile."""
from collections.abc import Iterator

import msgspec

from simulator import registry
from simulator.config.experiment import LegRouting, Scorer
from simulator.config.layers import Path


def routing_tables(cluster) -> Iterator[tuple[Path, LegRouting]]:
    """Yield (path, table) of each router of [cluster]."""
    chosen = cluster.disaggregation
    tables = {("cluster", "routing"): cluster.routing,
              ("cluster", "disaggregation", "prefill"): chosen and chosen.prefill,
              ("cluster", "disaggregation", "decode"): chosen and chosen.decode}
    yield from ((path, table) for path, table in tables.items() if table is not None)


def fill_in_scorers(cluster) -> None:
    """Give routers without scorers the default scorers of their profiles.

    So the resolved experiment lists the scorers in use.
    """
    for _, table in routing_tables(cluster):
        usual = registry.load("router", table.policy).usual_scorers(table.parameters) if not table.scorers else ()
        if usual:
            msgspec.structs.force_setattr(table, "scorers", tuple(
                Scorer(name=name, weight=weight, parameters=registry.load("scorer", name).Parameters(**keys))
                for name, weight, keys in usual))
