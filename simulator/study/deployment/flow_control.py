"""[cluster.gateway_queue] as the flow control of llm-d-router.

Sources: llm-d/llm-d-router@04433592, apix/config/v1alpha1/endpointpickerconfig_types.go; the READMEs of fairness,
ordering, usage limits and saturation detectors in pkg/epp/framework/plugins/flowcontrol (2026-08).
"""
from collections.abc import Callable, Iterator
from typing import Any

from simulator.domain.gateway import GatewayQueueParameters
from simulator.study.deployment.picker_plugins import DETECTORS, Plugin, detector_of, duration_of, renamed

PLACE = "cluster.gateway_queue."
NO_LIMIT = "1E"                 # of a band, in place of llm-d-router's defaults; a quantity of Kubernetes, 10**18
HOLDBACK = "priority-holdback-policy"
ORDERS = {"fifo": "fcfs-ordering-policy", "priority": "fcfs-ordering-policy",
          "slo_deadline": "slo-deadline-ordering-policy", "edf": "edf-ordering-policy"}
FAIRNESS = {"none": "global-strict-fairness-policy", "round_robin": "round-robin-fairness-policy",
            "las": "program-aware-fairness"}
LEAST_SERVICE = {"service_weight": "lasWeightService", "wait_weight": "lasWeightHeadWait",
                 "half_life_s": "lasHalfLifeSeconds", "ttl_s": "evictionTtlSeconds"}
OUTPUT_WEIGHT = 2.0             # of program-aware-fairness, and no parameter of it
SCAN_S = 1.0                    # between two searches for expired requests, and no parameter either
SAID = ("fairness", "lowest_ceiling", "max_requests", "max_requests_per_band", "max_bytes", "max_bytes_per_band",
        "ttl_s", "no_endpoint_ttl_s", "in_flight_eviction", "limits.policy", "limits.least_ceiling",
        "limits.largest_ceiling", "limits.spacing", "saturation.detector", "saturation.queue_depth_threshold",
        "saturation.kv_usage_threshold", "saturation.staleness_s", "saturation.mode", "saturation.max_concurrency",
        "saturation.max_tokens", *(f"las.{key}" for key in LEAST_SERVICE))


def flow_control(queue: GatewayQueueParameters, add: Callable[[Plugin], str]) -> dict[str, Any]:
    """Return the table flowControl of a queue without `faults_of_queue`.

    add : adds a plugin to the file, and returns its name.
    """
    fairness = Plugin(FAIRNESS[queue.fairness], renamed(queue.las, LEAST_SERVICE) if queue.fairness == "las" else {})
    limit = _limit(queue)
    table: dict[str, Any] = {"maxRequests": str(queue.max_requests)} if queue.max_requests else {}
    table |= {"maxBytes": str(queue.max_bytes)} if queue.max_bytes else {}
    table |= {"defaultRequestTTL": duration_of(queue.ttl_s),
              "noEndpointRequestTTL": duration_of(queue.no_endpoint_ttl_s or queue.ttl_s)}
    table["defaultPriorityBand"] = {
        "maxRequests": str(queue.max_requests_per_band or NO_LIMIT),
        "maxBytes": str(queue.max_bytes_per_band or NO_LIMIT),
        "fairnessPolicyRef": add(fairness), "orderingPolicyRef": add(Plugin(ORDERS[queue.order], {}))}
    table |= {"usageLimitPolicyPluginRef": add(limit)} if limit else {}
    table["saturationDetector"] = {
        "pluginRef": add(detector_of(queue.saturation.detector, queue.saturation.parameters))}
    return table | ({"enableEviction": True} if queue.in_flight_eviction else {})


def said_of(queue: GatewayQueueParameters) -> frozenset[str]:
    """Return the keys of an experiment that the table holds."""
    said = [*SAID, *(["order"] * (queue.order != "fifo")), *(["expiry_scan_s"] * (queue.expiry_scan_s == SCAN_S))]
    return frozenset(f"{PLACE}{key}" for key in said)


def faults_of_queue(queue: GatewayQueueParameters) -> Iterator[str]:
    """Yield the keys that would make another queue of it."""
    if queue.order not in ORDERS:
        yield f'order: --as llm-d-router: expected one of {", ".join(ORDERS)}, found "{queue.order}"'
    if queue.fairness == "las" and queue.las.output_weight != OUTPUT_WEIGHT:
        yield (f"las.output_weight: --as llm-d-router: expected {OUTPUT_WEIGHT}, which program-aware-fairness has, "
               f"found {queue.las.output_weight}")
    detector, keys = queue.saturation.detector, queue.saturation.parameters
    if detector not in DETECTORS:
        yield (f'saturation.detector: --as llm-d-router: expected one of {", ".join(DETECTORS)}, found '
               f'"{detector}"')
    elif (depth := getattr(keys, "queue_depth_threshold", 1)) != int(depth):
        yield f"saturation.queue_depth_threshold: --as llm-d-router: expected a whole number, found {depth}"


def _limit(queue: GatewayQueueParameters) -> Plugin | None:
    limits = queue.limits
    if limits.policy == "reflective":
        return Plugin("soft-reflective-ceiling-policy", {})
    if limits.policy == "holdback":
        return Plugin(HOLDBACK, {"domain": limits.spacing, "minCeiling": limits.least_ceiling,
                                 "maxCeiling": limits.largest_ceiling})
    if queue.lowest_ceiling < 1:
        return Plugin(HOLDBACK, {"domain": "rank", "minCeiling": queue.lowest_ceiling})
    return None
