"""Routers and scorers of [cluster]: default scorers of profiles, rows of the table of conflicts, unused weights."""
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from simulator import registry
from simulator.config.conflicts import Conflict, Feature, table_at
from simulator.config.experiment import LegRouting, Scorer
from simulator.config.layers import Path
from simulator.config.words import show


def routing_tables(section: Any, path: Path = ("cluster",)) -> Iterator[tuple[Path, LegRouting]]:
    """Yield (path, table) of each router of a table and of the tables in it."""
    for name in section.__struct_fields__:
        inner = getattr(section, name)
        if isinstance(inner, LegRouting):
            yield (*path, name), inner
        elif isinstance(inner, msgspec.Struct):
            yield from routing_tables(inner, (*path, name))


def policies_of(cluster) -> Iterator[tuple[Path, type, Any]]:
    """Yield (path, class, parameters) of each router and scorer of [cluster]."""
    for path, routing in routing_tables(cluster):
        yield path, registry.load("router", routing.policy), routing.parameters
        for i, scorer in enumerate(routing.scorers):
            yield (*path, "scorers", i), registry.load("scorer", scorer.name), scorer.parameters


def unused_weights(cluster, has_table: Callable[[str], bool]) -> Iterator[tuple[Path, str]]:
    """Refuse keys of policies without an effect, since an experiment lacks a table.

    has_table : name of a table -> whether the experiment, or one of its pools, has it.
    """
    for path, kind, parameters in policies_of(cluster):
        defaults = {field.name: field.default for field in msgspec.structs.fields(parameters)}
        for key, (table, why) in kind.idle_keys().items():
            found = getattr(parameters, key)
            if found != defaults[key] and not has_table(table):
                yield (*path, key), f"expected none without [{table}], found {show(found)}: {why}, and there are none"


def scorers_without_use(table: str) -> Conflict:
    """Return the row of scorers in a table with a router without scorers."""
    return Conflict(Feature(f"scorers in [{table}]", f"{table}.scorers"), Feature(
        f"routers without scorers in [{table}]", f"{table}.policy", value=lambda place: (
            (chosen := table_at(place, table)) and ":" not in chosen.policy
            and not registry.load("router", chosen.policy).takes_scorers and chosen.policy)),
        '"weighted" adds up scores')


CONFLICTS = (scorers_without_use("cluster.routing"),)


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
