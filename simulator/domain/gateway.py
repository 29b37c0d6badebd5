"""Schemas of [cluster.gateway_queue] and its saturation detector."""
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from simulator.domain.slack import SlackRule

MAX_S = 1e6         # 11 days
Requests = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Bytes = Annotated[int, Meta(ge=0, le=2**62)]
Ceiling = Annotated[float, Meta(gt=0, le=1)]      # at 0 nothing would ever pass
Weight = Annotated[float, Meta(ge=0, le=1e6)]


class Saturation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Saturation of replicas, [cluster.gateway_queue.saturation]."""

    detector: Annotated[str, Meta(description=(
        "detector that measures saturation; at 1 no request passes"))] = "utilisation"
    parameters: Annotated[Any, Meta(extra={"kind": "saturation"})]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Saturation at which each priority is held back, [cluster.gateway_queue.limits].

    Bands count from their first request on; the first band that is held back holds all below, too. Source: usage
    limits of llm-d-router ebab6879.
    """

    policy: Annotated[Literal["static", "holdback", "reflective"], Meta(description=(
        "static: as lowest_ceiling says; holdback: between largest_ceiling for the most urgent band and least_ceiling "
        "for the lowest; reflective: the most urgent band is held back at 1, a lower one is open while saturation s "
        "is below 1 - position / (bands - 1) x s, above that for one of each round(s / (1 - s)) requests"))] = "static"
    least_ceiling: Annotated[Ceiling | None, Meta(description=(
        "with holdback: saturation at which the lowest band is held back"))] = None
    largest_ceiling: Annotated[Ceiling, Meta(description=(
        "with holdback: saturation at which the most urgent band is held back"))] = 1.0
    spacing: Annotated[Literal["rank", "value"], Meta(description=(
        "with holdback: ceilings of the bands between: rank: in equal steps; value: in proportion to their "
        "priority"))] = "rank"

    def __post_init__(self):
        is_holdback = self.policy == "holdback"
        if is_holdback != (self.least_ceiling is not None):
            verb = "give it" if is_holdback else "leave it out"
            raise ValueError(f'least_ceiling: {verb} with policy = "{self.policy}"')
        if not is_holdback and (self.largest_ceiling, self.spacing) != (1.0, "rank"):
            raise ValueError(f'largest_ceiling and spacing: leave them out with policy = "{self.policy}"')
        if is_holdback and self.least_ceiling > self.largest_ceiling:
            raise ValueError(f"least_ceiling = {self.least_ceiling}: expected at most largest_ceiling = "
                             f"{self.largest_ceiling}")


class LeastService(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights of least attained service, [cluster.gateway_queue.las].

    score of a tenant = service_weight x (1 - norm(S)) + wait_weight x norm(age of its oldest waiting request in whole
    ms), norm(x) = (x - least) / (most - least) over the tenants with waiting requests, 0.5 if equal. When a request
    leaves its replica, S += prompt tokens + output_weight x output tokens; S halves each half_life_s. Source:
    program-aware fairness of llm-d-router ebab6879.
    """

    service_weight: Annotated[Weight, Meta(description="weight of little attained service")] = 0.8
    wait_weight: Annotated[Weight, Meta(description="weight of a long wait")] = 0.2
    half_life_s: Annotated[float, Meta(gt=0, le=MAX_S, description="time in which attained service halves")] = 60.0
    output_weight: Annotated[Weight, Meta(description="prompt tokens that an output token counts for")] = 2.0
    ttl_s: Annotated[float, Meta(gt=0, le=MAX_S, description=(
        "time without a completion after which a tenant's service is forgotten"))] = 3600.0


class ReclamationRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests in flight that are revoked at once, and the pause after.

    For the most urgent band with waiting requests that saturation s holds back at its ceiling c, n requests of lower
    priorities below 0 are revoked, n = ceil((s - c) / (s / requests in flight)), at least 1: the lowest priority first,
    of one priority the request that was sent last. The next decision comes when all n have left their replicas and
    grace_s is over. Source: llm-d-router, docs/flow-control-eviction.md at 88d2b9dd. A revoked request leaves its
    replica as soon as that can remove it, so that llm-d's limit of 10 s on this wait never counts.
    """

    max_evictions: Annotated[int, Meta(ge=1, le=2**31 - 1, extra={"unit": "requests"}, description=(
        "most requests that are revoked at once"))] = 2
    grace_s: Annotated[float, Meta(ge=0, le=MAX_S, description=(
        "time from the last end of a revoked request to the next decision, for metrics that are old; newer releases of "
        "llm-d: 0.01 with the detector concurrency, 0.25 + age of reports with utilisation"))] = 0.5


class GatewayQueueParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests wait here until replicas can take them, [cluster.gateway_queue].

    Classes of equal priority are one band. Source: flow control of llm-d's inference gateway as BLIS (inference-sim,
    sim/cluster/gateway_queue.go) implements it.
    """

    order: Annotated[Literal["fifo", "priority", "slo_deadline", "edf", "slack"], Meta(description=(
        "fifo: first come, first served; priority: the most urgent band first, within a band by arrival; slo_deadline: "
        "the most urgent band first, within a band by arrival + ttft_ms of the class; edf: the same by the instant at "
        "which a request is given up, by its client's deadline or by ttl_s; slack: the most urgent band first, within "
        "a band the least slack; requests with equal rounded log2 of prompt and output tokens go by "
        "arrival"))] = "priority"
    slack: Annotated[SlackRule | None, Meta(description="targets and latencies by size, with order = slack")] = None
    fairness: Annotated[Literal["none", "round_robin", "las"], Meta(description=(
        "round_robin: within a band one tenant after the other, in the order of their names; las: within a band the "
        "tenant with the highest score, for least attained service"))] = "none"
    las: Annotated[LeastService, Meta(description=(
        "weights of least attained service, with fairness = las"))] = LeastService()
    limits: Annotated[Limits, Meta(description="saturation at which each priority is held back")] = Limits()
    dispatch: Annotated[Literal["ticks", "departures"], Meta(description=(
        "when a request is passed on, other than at an arrival: ticks: one at each tick (llm-d); departures: one for "
        "each request that leaves a replica"
    ))] = "ticks"
    tick_s: Annotated[float, Meta(ge=1e-6, le=MAX_S, description=(
        "time between ticks; there are no ticks while no request waits"))] = 1e-3
    max_requests: Annotated[Requests, Meta(description="limit on waiting requests; 0: no limit")] = 0
    max_requests_per_band: Annotated[Requests, Meta(description=(
        "limit on waiting requests of one priority; 0: no limit"))] = 0
    max_bytes: Annotated[Bytes, Meta(description=(
        "limit on the bytes of all waiting requests; a request above it is refused, whatever shedding says; 0: no "
        "limit"))] = 0
    max_bytes_per_band: Annotated[Bytes, Meta(description=(
        "the same for the waiting requests of one priority; 0: no limit; llm-d: 1_000_000_000"))] = 0
    bytes_per_token: Annotated[float, Meta(gt=0, le=1e6, extra={"unit": "bytes"}, description=(
        "bytes of the body of a request for each of its prompt tokens; 4 as in llm-d's autoscaler "
        "(llm-d-workload-variant-autoscaler b08b1c77), images and the like are not counted"))] = 4.0
    shedding: Annotated[Literal["none", "sheddable", "lowest"], Meta(description=(
        "when max_requests wait: none: a new request is refused; sheddable: the newest request of the lowest priority "
        "is dropped for a more urgent one, if that priority is below 0; lowest: as sheddable, but for any "
        "priority"))] = "none"
    ttl_s: Annotated[float, Meta(ge=0, le=MAX_S, description=(
        "longest wait, after which a request is dropped; 0: no limit"))] = 0.0
    no_endpoint_ttl_s: Annotated[float, Meta(ge=0, le=MAX_S, description=(
        "longest wait while no replica is routable, in place of ttl_s; the request is then dropped for want of a "
        "replica, as after every wait that ends while there is none; 0: ttl_s; llm-d: 60"))] = 0.0
    expiry_scan_s: Annotated[float, Meta(ge=0, le=MAX_S, description=(
        "time between two searches for requests that have waited for too long; 0: each is dropped at its instant; "
        "llm-d: 1"))] = 0.0
    saturation_legs: Annotated[Literal["first", "all"], Meta(description=(
        "replicas that are saturated, where pools have roles: first: those of the first leg of a request; all: the "
        "larger saturation, of prefill or of decode replicas, counts, as in llm-d"))] = "first"
    lowest_ceiling: Annotated[float, Meta(gt=0, le=1, description=(
        "saturation at which the lowest band is held back; the highest is held back at 1, bands between in equal "
        "steps"))] = 1.0
    in_flight_eviction: Annotated[bool, Meta(description=(
        "while replicas are saturated and a request of priority >= 0 waits, remove one of priority < 0 from its "
        "replica at each attempt; it is lost"))] = False
    reclamation: Annotated[ReclamationRule | None, Meta(description=(
        "with in_flight_eviction: several requests are revoked at once, with a pause after, [cluster.gateway_queue."
        "reclamation]; absent: one at each attempt, as in BLIS"))] = None
    upstream_compat: Annotated[bool, Meta(description=(
        "as in BLIS, in_flight_eviction misses a request that is still on its way to the queue of its replica"
    ))] = False
    saturation: Annotated[Saturation, Meta(description="detector of saturated replicas, with its keys")]

    def __post_init__(self):
        if self.fairness != "las" and self.las != LeastService():
            raise ValueError(f'las: leave it out with fairness = "{self.fairness}"')
        if self.limits.policy != "static" and self.lowest_ceiling != 1.0:
            raise ValueError(f'lowest_ceiling: leave it out with limits.policy = "{self.limits.policy}"')
        if self.expiry_scan_s and not self.ttl_s + self.no_endpoint_ttl_s:
            raise ValueError("expiry_scan_s: leave it out without ttl_s and no_endpoint_ttl_s: no wait ends")
        if self.limits.policy != "static" and self.order == "fifo":
            raise ValueError(f'limits.policy = "{self.limits.policy}": order = "fifo" has no bands to hold back')
        if (self.order == "slack") != (self.slack is not None):
            verb = "give it" if self.slack is None else "leave it out"
            raise ValueError(f'slack: {verb} with order = "{self.order}"')
        if self.order == "slack" and self.fairness != "none":
            raise ValueError(f'fairness = "{self.fairness}": order = "slack" has no lines of tenants')
        if self.bytes_per_token != 4.0 and not self.counts_bytes:
            raise ValueError("bytes_per_token: leave it out without max_bytes and max_bytes_per_band")
        if self.reclamation is not None:
            self._check_reclamation()

    def _check_reclamation(self):
        if not self.in_flight_eviction:
            raise ValueError("reclamation: leave it out with in_flight_eviction = false")
        if self.order == "fifo":
            raise ValueError('reclamation: order = "fifo" has no bands to revoke requests for')
        if self.upstream_compat:
            raise ValueError("reclamation: leave it out with upstream_compat = true, which has the rule of BLIS")

    @property
    def counts_bytes(self):
        """Return whether the bytes of waiting requests have a limit."""
        return self.max_bytes + self.max_bytes_per_band > 0

    @property
    def uses_expected_tokens(self):
        """Return whether predictions of output lengths matter, if there are any."""
        return self.order == "slack"
