"""Routers, filters and scorers of [cluster]: scorers of profiles, conflicts, keys that name or weigh nothing."""
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from simulator import registry
from simulator.config.conflicts import Conflict, Feature, table_at, without
from simulator.config.experiment import LegRouting, Scorer
from simulator.config.layers import Path
from simulator.config.words import show
from simulator.errors import did_you_mean


def routing_tables(section: Any, path: Path = ("cluster",)) -> Iterator[tuple[Path, LegRouting]]:
    """Yield (path, table) of each router of a table and of the tables in it."""
    for name in section.__struct_fields__:
        inner = getattr(section, name)
        if isinstance(inner, LegRouting):
            yield (*path, name), inner
        elif isinstance(inner, msgspec.Struct):
            yield from routing_tables(inner, (*path, name))


def policies_of(cluster) -> Iterator[tuple[Path, type, Any]]:
    """Yield (path, class, parameters) of each router, filter and scorer of [cluster]."""
    for path, routing in routing_tables(cluster):
        yield path, registry.load("router", routing.policy), routing.parameters
        for i, each in enumerate(routing.filters):
            yield (*path, "filters", i), registry.load("filter", each.name), each.parameters
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


def unknown_pools(cluster, pools) -> Iterator[tuple[Path, str]]:
    """Refuse names of pools in policies that no pool of the experiment has."""
    names = [pool.name for pool in pools]
    for path, _, parameters in policies_of(cluster):
        for name in getattr(parameters, "pools", ()):
            if name not in names:
                yield (*path, "pools"), (f"expected names of [[pools]], found {show(name)}{did_you_mean(name, names)}"
                                         if names else f"expected none without [[pools]], found {show(name)}")


def filters_without_use(table: str) -> Conflict:
    """Return the row of filters in a table with a router without filters."""
    return Conflict(Feature(f"filters in [{table}]", f"{table}.filters"), Feature(
        f"routers without filters in [{table}]", f"{table}.policy", value=lambda place: (
            (chosen := table_at(place, table)) and ":" not in chosen.policy
            and not registry.load("router", chosen.policy).takes_filters and chosen.policy)),
        '"weighted" applies filters')


def scorers_without_use(table: str) -> Conflict:
    """Return the row of scorers in a table with a router without scorers."""
    return Conflict(Feature(f"scorers in [{table}]", f"{table}.scorers"), Feature(
        f"routers without scorers in [{table}]", f"{table}.policy", value=lambda place: (
            (chosen := table_at(place, table)) and ":" not in chosen.policy
            and not registry.load("router", chosen.policy).takes_scorers and chosen.policy)),
        '"weighted" adds up scores')


def _fits_prompts(place) -> bool:
    """Return whether a router adds up a score that reads the prompt ranges of pools; a user's class may."""
    return any(each.name == "context-length" or ":" in each.name
               for _, table in routing_tables(place.cluster) for each in table.scorers)


CONTEXT_RANGES = Conflict(
    Feature("prompt lengths for which pools are meant", "context_range"),
    without(Feature("the scorer context-length", "cluster.routing.scorers", value=_fits_prompts,
                    phrase='the scorer "context-length"')), "nothing else looks at it")
CONFLICTS = (CONTEXT_RANGES, scorers_without_use("cluster.routing"), filters_without_use("cluster.routing"))


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
