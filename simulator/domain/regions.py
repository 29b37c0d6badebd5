"""Schema of [cluster.regions]: places far from each other, each with a gateway and replicas of its own."""
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1)]
Millis = Annotated[float, Meta(ge=0, le=1e6)]
Share = Annotated[float, Meta(ge=0, le=1e9)]
Number = Annotated[int, Meta(ge=0, le=2**20)]
MOST = 64


class Regions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Regions with latency between them, [cluster.regions].

    A request comes to the gateway of its home region. The gateway keeps it, or forwards it once to the gateway of
    another region, which it reaches latency_ms later; queues, workers, windows, encoders and the router there are for
    the replicas of that region alone, and so is a rescheduler. With `[cluster.gateways]` each region has count
    instances; all know the requests of their region. A request that a pool failed to serve is sent to its fallback by
    its home, once the home has learnt of that. Its tokens, or its refusal, take latency_ms on the way back. A region
    learns latency_ms later that a client gives up. The load of a region is its requests, on their way to the gateway
    left out, over its routable replicas. A gateway knows the requests of its own region at once, those of another
    region latency_ms later, and besides them it counts requests that it forwarded there in the last 2 x latency_ms. The
    admission policy of the home decides. With data-parallel ranks each rank counts as a replica in loads. With pools
    for prefill and decode both replicas of a request are in one region, and those of all roles count in its load; a
    region without a routable one for prompts, or for outputs, is passed over.
    """

    names: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MOST, description="names of the regions")]
    replicas: Annotated[tuple[Number, ...], Meta(extra={"unit": "replicas"}, description=(
        "replicas of each region, in order of their number; this or `pools`"))] = ()
    pools: Annotated[tuple[tuple[Name, ...], ...], Meta(description=(
        "names of the pools in each region; this or `replicas`"))] = ()
    latency_ms: Annotated[tuple[tuple[Millis, ...], ...], Meta(extra={"unit": "ms"}, description=(
        "one row for each region: time from its gateway to that of each region, one way; 0 to itself"))]
    share: Annotated[tuple[Share, ...], Meta(extra={"unit": "weight"}, description=(
        "weight of each region in the demand: the chance of a request to come from there is its share of the sum; "
        "default: all the same"))] = ()
    by: Annotated[Literal["request", "session", "tenant"], Meta(description=(
        "unit for which the home region is drawn by share: all requests of a session, or of a tenant, come from one "
        "region"))] = "request"
    column: Annotated[Literal["tenant", "session", "slo_class"] | None, Meta(description=(
        "column of the requests that names their home region, in place of share"))] = None
    policy: Annotated[Literal["local_first", "lowest_latency"], Meta(description=(
        "region of a request whose home has a load of spill_at or more, among regions below it. local_first: that of "
        "the lowest load; lowest_latency: the nearest one, at equal latency of the lower load; no region below it: the "
        "home, or, if no replica there is routable, among all regions"))] = "local_first"
    spill_at: Annotated[float, Meta(gt=0, le=1e9, extra={"unit": "requests", "inf": True}, description=(
        "requests per routable replica from which a region is saturated"))] = 16.0

    def __post_init__(self):
        count = len(self.names)
        if len(set(self.names)) < count:
            raise ValueError("names: a name is there twice")
        if bool(self.replicas) == bool(self.pools):
            raise ValueError("give replicas or pools, one of them")
        for key, given in (("replicas", self.replicas), ("pools", self.pools), ("share", self.share)):
            if given and len(given) != count:
                raise ValueError(f"{key}: expected {count}, one for each of names, found {len(given)}")
        if len(self.latency_ms) != count or any(len(row) != count for row in self.latency_ms):
            raise ValueError(f"latency_ms: expected {count} rows of {count} numbers")
        if any(row[i] for i, row in enumerate(self.latency_ms)):
            raise ValueError("latency_ms: expected 0 from a region to itself")
        if self.share and sum(self.share) <= 0:
            raise ValueError("share: expected a positive one")
        if self.column is not None and (self.share or self.by != "request"):
            raise ValueError("column: leave share and by out, or column")
        placed = [name for region in self.pools for name in region]
        if len(set(placed)) < len(placed):
            raise ValueError("pools: a pool is in one region")

    @property
    def weights(self) -> tuple[float, ...]:
        """Return the weight of each region in the demand."""
        return self.share or (1.0,) * len(self.names)
