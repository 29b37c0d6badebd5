"""Schema of [cluster.traffic_split]: shares of the requests for pools, as for a canary."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Weight = Annotated[float, Meta(ge=0, le=1e9)]


class TrafficSplit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares of the requests for pools, [cluster.traffic_split].

    Source: Gateway API 1.4 of Kubernetes, HTTPBackendRef.weight: a backend gets its share of the sum of weights.
    """

    pools: Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1, description=(
        "names of pools that share the requests"))]
    weights: Annotated[tuple[Weight, ...], Meta(min_length=1, extra={"unit": "weight"}, description=(
        "weight of each of `pools`: the chance of a request to go there is its share of the sum"))]
    by: Annotated[Literal["request", "session", "tenant"], Meta(description=(
        "unit for which a pool is drawn: all requests of a session, or of a tenant, go to one pool; requests without "
        "one count each on its own"))] = "request"

    def __post_init__(self):
        if len(self.weights) != len(self.pools):
            raise ValueError(f"weights: expected {len(self.pools)}, one for each of pools, found {len(self.weights)}")
        if len(set(self.pools)) < len(self.pools):
            raise ValueError("pools: a name is there twice")
        if sum(self.weights) <= 0:
            raise ValueError("weights: expected a positive one")
