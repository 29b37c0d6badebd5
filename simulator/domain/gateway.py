"""The queue at the gateway, and when replicas count as saturated: what an experiment says of them."""
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_S = 1e6         # 11 days
Requests = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Saturation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When replicas are saturated, [cluster.gateway_queue.saturation]."""

    detector: Annotated[str, Meta(description="what measures saturation; at 1 no request passes")] = "utilisation"
    parameters: Annotated[Any, Meta(extra={"kind": "saturation"})]


class GatewayQueueParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where requests wait until replicas can take them, [cluster.gateway_queue].

    Classes of equal priority are one band. Source: flow control of llm-d's inference gateway as BLIS (inference-sim,
    sim/cluster/gateway_queue.go) has it.
    """

    order: Annotated[Literal["fifo", "priority", "slo_deadline"], Meta(description=(
        "fifo: first come, first served; priority: the most urgent band first, in it by arrival; slo_deadline: in it "
        "by arrival + ttft_ms of the class"))] = "priority"
    fairness: Annotated[Literal["none", "round_robin"], Meta(description=(
        "round_robin: in a band one tenant after the other, in the order of their names"))] = "none"
    dispatch: Annotated[Literal["ticks", "departures"], Meta(description=(
        "besides when a request comes, one is passed on at each tick (llm-d), or for each one that leaves a replica"
    ))] = "ticks"
    tick_s: Annotated[float, Meta(ge=1e-6, le=MAX_S, description=(
        "time between ticks; there are none while none waits"))] = 1e-3
    max_requests: Annotated[Requests, Meta(description="that wait; 0: any number")] = 0
    max_requests_per_band: Annotated[Requests, Meta(description="of equal priority that wait; 0: any number")] = 0
    shedding: Annotated[Literal["none", "sheddable", "lowest"], Meta(description=(
        "when max_requests wait: none: who comes is refused; sheddable: the newest of the lowest priority has to go "
        "for a more urgent one, if that priority is below 0; lowest: whatever that priority is"))] = "none"
    ttl_s: Annotated[float, Meta(ge=0, le=MAX_S, description="a request that waited so long is lost; 0: never")] = 0.0
    lowest_ceiling: Annotated[float, Meta(gt=0, le=1, description=(
        "saturation at which the lowest band is held; the highest is held at 1, those between in equal steps"))] = 1.0
    in_flight_eviction: Annotated[bool, Meta(description=(
        "while replicas are saturated and a request of priority >= 0 waits, take one of priority < 0 off its replica "
        "at each attempt; it is lost"))] = False
    upstream_compat: Annotated[bool, Meta(description=(
        "as BLIS does, in_flight_eviction misses a request that is still on its way to the queue of its replica"
    ))] = False
    saturation: Annotated[Saturation, Meta(description="when replicas are saturated, with the detector's keys")]
