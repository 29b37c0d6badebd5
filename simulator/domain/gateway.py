"""Schemas of [cluster.gateway_queue] and its saturation detector."""
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_S = 1e6         # 11 days
Requests = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Saturation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Saturation of replicas, [cluster.gateway_queue.saturation]."""

    detector: Annotated[str, Meta(description=(
        "detector that measures saturation; at 1 no request passes"))] = "utilisation"
    parameters: Annotated[Any, Meta(extra={"kind": "saturation"})]


class GatewayQueueParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests wait here until replicas can take them, [cluster.gateway_queue].

    Classes of equal priority are one band. Source: flow control of llm-d's inference gateway as BLIS (inference-sim,
    sim/cluster/gateway_queue.go) implements it.
    """

    order: Annotated[Literal["fifo", "priority", "slo_deadline"], Meta(description=(
        "fifo: first come, first served; priority: the most urgent band first, within a band by arrival; slo_deadline: "
        "the most urgent band first, within a band by arrival + ttft_ms of the class"))] = "priority"
    fairness: Annotated[Literal["none", "round_robin"], Meta(description=(
        "round_robin: within a band one tenant after the other, in the order of their names"))] = "none"
    dispatch: Annotated[Literal["ticks", "departures"], Meta(description=(
        "when a request is passed on, other than at an arrival: ticks: one at each tick (llm-d); departures: one for "
        "each request that leaves a replica"
    ))] = "ticks"
    tick_s: Annotated[float, Meta(ge=1e-6, le=MAX_S, description=(
        "time between ticks; there are no ticks while no request waits"))] = 1e-3
    max_requests: Annotated[Requests, Meta(description="limit on waiting requests; 0: no limit")] = 0
    max_requests_per_band: Annotated[Requests, Meta(description=(
        "limit on waiting requests of one priority; 0: no limit"))] = 0
    shedding: Annotated[Literal["none", "sheddable", "lowest"], Meta(description=(
        "when max_requests wait: none: a new request is refused; sheddable: the newest request of the lowest priority "
        "is dropped for a more urgent one, if that priority is below 0; lowest: as sheddable, but for any "
        "priority"))] = "none"
    ttl_s: Annotated[float, Meta(ge=0, le=MAX_S, description=(
        "longest wait, after which a request is dropped; 0: no limit"))] = 0.0
    lowest_ceiling: Annotated[float, Meta(gt=0, le=1, description=(
        "saturation at which the lowest band is held back; the highest is held back at 1, bands between in equal "
        "steps"))] = 1.0
    in_flight_eviction: Annotated[bool, Meta(description=(
        "while replicas are saturated and a request of priority >= 0 waits, remove one of priority < 0 from its "
        "replica at each attempt; it is lost"))] = False
    upstream_compat: Annotated[bool, Meta(description=(
        "as in BLIS, in_flight_eviction misses a request that is still on its way to the queue of its replica"
    ))] = False
    saturation: Annotated[Saturation, Meta(description="detector of saturated replicas, with its keys")]
