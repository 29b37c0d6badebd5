"""Shares of the requests for pools, for [cluster.traffic_split].

Each pool has a gateway of its own; the column `model` of a request names its pool, drawn before the run.
"""
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from simulator.assembly.parts.base import Fault, Part
from simulator.config import features as has
from simulator.config.conflicts import Conflict, Feature
from simulator.core.random_streams import RandomStreams
from simulator.domain.traffic_split import TrafficSplit
from simulator.errors import InputErrors, KeyFault, did_you_mean

KEY = "cluster.traffic_split"
SPLIT = Feature("shares of the requests for pools", KEY)


class Shares(Part):
    """Shares of the requests for pools."""

    keys = {KEY: Annotated[TrafficSplit | None, Meta(description=(
        "shares of the requests for pools, such as a canary; each pool has a router of its own; absent: pools serve "
        "requests by their column model"))]}
    conflicts = (
        Conflict(SPLIT, has.ROLES, "a pool serves the whole of its requests"),
        Conflict(SPLIT, Feature("pools by model", "pools[].serves"),
                 "the column model of a request then names its pool"),
        Conflict(SPLIT, Feature("pool selection", "cluster.pool_selection"), "each of the two names the pool"),
    )

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
        given, pools = sections["cluster"], sections["pools"]
        if given in (None, missing) or pools is missing or given.traffic_split is None:
            return
        names = [pool.name for pool in pools if pool.role != "encode"]
        for i, name in enumerate(given.traffic_split.pools):
            if name not in names:
                yield ("cluster", "traffic_split", "pools", i), f'there is no pool "{name}"{did_you_mean(name, names)}'

    def pool(self, pool):
        """Return a pool that serves the requests that name it."""
        return pool if pool.role == "encode" else replace(pool, serves=pool.name)

    def requests(self, columns, seed: int):
        """See Part; the column model names the pool."""
        split = self.experiment.cluster.traffic_split
        draws = RandomStreams(seed).generator("traffic split")
        chosen = _drawn(draws, split.weights, len(columns))
        if split.by != "request":
            codes, names = columns.labels.get(split.by, (None, ()))
            if codes is None:
                raise InputErrors([KeyFault(f"{KEY}.by: expected \"request\", since no request has a {split.by}, found "
                                            f"\"{split.by}\"")])
            of_units = _drawn(draws, split.weights, len(names))
            chosen = np.where(codes >= 0, np.append(of_units, 0)[codes], chosen)
        return replace(columns, labels=columns.labels | {"model": (chosen.astype(np.int32), list(split.pools))})

    def summary(self, run, summary):
        """See Part."""
        cluster = self.experiment.cluster
        left = {each.of for each in cluster.fallbacks}
        kept = [name for name in cluster.traffic_split.pools if name not in left]
        of = f" {', '.join(kept)}," if left else ""
        return {"diagnosis": [f"{KEY}: a request stays with its pool{of} if the replicas there fail or are closed"]
                } if kept else {}


def _drawn(draws: np.random.Generator, weights: tuple[float, ...], count: int) -> np.ndarray:
    """Draw `count` indices by weights."""
    bounds = np.cumsum(weights) / np.sum(weights)
    return np.minimum(np.searchsorted(bounds, draws.random(count), side="right"), _last(weights))


def _last(weights: tuple[float, ...]) -> int:
    """Return the last index with a weight, which rounding must not pass."""
    return max(i for i, weight in enumerate(weights) if weight > 0)
