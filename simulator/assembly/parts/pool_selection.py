"""Selection of pools by the shape of requests, for [cluster.pool_selection].

Each pool has a gateway of its own; the column `model` of a request names its pool. As length, bounds and priority of a
request are known when it comes, all pools are selected before the run.
"""
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.assembly.parts.base import Fault, Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature
from simulator.domain.slo_classes import bounds_of, by_name, class_of
from simulator.errors import did_you_mean
from simulator.routing.pool_selection import PoolSelection

KEY = "cluster.pool_selection"


class Selection(Part):
    """Selection of a pool for each request."""

    keys = {KEY: Annotated[PoolSelection | None, Meta(description=(
        "selection of a pool for each request by its length, bounds and priority; each pool has a router of its own; "
        "absent: pools serve requests by their column model"))]}
    conflicts = (
        Conflict(Feature("pool selection", KEY), has.ROLES, "a pool serves whole requests of its cells"),
        Conflict(Feature("pool selection", KEY), Feature("pools by model", "pools[].serves"),
                 "the column model of a request then names its pool"),
    )

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
        given, pools = sections["cluster"], sections["pools"]
        if given in (None, missing) or pools is missing or given.pool_selection is None:
            return
        names = [pool.name for pool in pools if pool.role != "encode"]
        for name in given.pool_selection.names:
            if name not in names:
                yield ("cluster", "pool_selection"), f'there is no pool "{name}"{did_you_mean(name, names)}'

    def pool(self, pool):
        """Return a pool that serves the requests that name it."""
        return pool if pool.role == "encode" else replace(pool, serves=pool.name)

    def requests(self, columns, seed: int):
        """See Part; the column model names the pool."""
        chosen = self.experiment.cluster.pool_selection
        priority = np.zeros(len(columns)) if columns.priority is None else columns.priority.astype(float)
        codes, names = columns.labels.get("slo_class", (np.full(len(columns), -1), []))
        pools = chosen.select(columns.prompt_tokens.astype(float), *bounds_ms(self.experiment.slo, codes, names),
                              priority)
        if chosen.too_long:
            longest = {pool.name: pool.engine.max_model_len or math.inf for pool in self.experiment.all_pools()}
            pools = chosen.moved(pools, columns.prompt_tokens + columns.output_tokens,
                                 [longest[name] for name in chosen.names])
        return replace(columns, labels=columns.labels | {"model": (pools, list(chosen.names))})

    def summary(self, run, summary):
        """See Part."""
        cluster = self.experiment.cluster
        notes = cluster.pool_selection.overlaps()
        if not (cluster.pool_selection.retry or cluster.fallbacks):
            notes.append("cluster.pool_selection: without retry a request stays with its pool if that fails")
        return {"diagnosis": notes} if notes else {}


def bounds_ms(slo, codes: np.ndarray, names: Sequence[str]) -> Iterator[np.ndarray]:
    """Yield the bounds on TTFT, and on the time between tokens, of each request.

    NaN: it has none.

    codes : of the SLO class of each request, in `names`; -1: none.
    """
    classes = by_name(slo.classes)
    found = [bounds_of(class_of(name, classes), slo) for name in (*names, None)]        # code -1: no class
    for key in ("ttft_ms", "tpot_ms"):
        values = [getattr(each, key) for each in found]
        yield np.array([math.nan if value is None else value for value in values])[codes]
