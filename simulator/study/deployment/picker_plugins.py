"""Scorers, filters and detectors of ours as plugins of llm-d-router.

Sources: llm-d/llm-d-router (2026-08), pkg/epp/framework/plugins: the README of each plugin, or its config; of
utilization-filter, cluster_2026 section 2.2. deploy/config for the producers that prefix scores read.
"""
from collections.abc import Callable
from typing import Any, NamedTuple

from simulator.config.experiment import Scorer
from simulator.study.deployment.given_values import given_values

PRODUCER = "approx-prefix-cache-producer"
BURSTS = "burst-prefix-cache-producer"
ITEMS = "mm-embeddings-cache-producer"
UNLIMITED = 2**31 - 1
LEAST_BLOCK = 64                # tokens, of the record of prompts
NEVER_S = 10 * 365 * 86400      # llm-d-router takes an age of reports above 0
POOL_LABEL = "llm-d.ai/pool"
# scorer -> type of the plugin, {key: its parameter}
SCORERS = {
    "active-requests": ("active-request-scorer", {"idle_threshold": "idleThreshold", "max_busy_score": "maxBusyScore"}),
    "burst-prefix": ("prefix-cache-scorer", {}),
    "context-length": ("context-length-aware", {}),
    "header-label": ("header-label-affinity-scorer", {}),
    "kv-utilization": ("kv-cache-utilization-scorer", {}),
    "load-aware": ("load-aware-scorer", {"threshold_requests": "threshold"}),
    "lora-affinity": ("lora-affinity-scorer", {}),
    "mm-cache-affinity": ("mm-embeddings-cache-scorer", {}),
    "no-hit-lru": ("no-hit-lru-scorer", {}),
    "prefix-affinity": ("prefix-cache-scorer", {"length_weight": "prefixLengthWeight", "scale_tokens": "maxModelLen"}),
    "queue-depth": ("queue-scorer", {}),
    "running-requests": ("running-requests-size-scorer", {}),
    "session-affinity": ("session-affinity-scorer", {}),
    "token-load": ("token-load-scorer", {"threshold_tokens": "queueThresholdTokens"}),
}
UTILISATION = ("utilization-detector", {"queue_depth_threshold": "queueDepthThreshold",
                                        "kv_usage_threshold": "kvCacheUtilThreshold", "headroom": "headroom"})
CONCURRENCY = ("concurrency-detector", {"mode": "concurrencyMode", "max_concurrency": "maxConcurrency",
                                        "max_tokens": "maxTokenConcurrency", "headroom": "headroom"})
DETECTORS = {"utilisation": UTILISATION, "concurrency": CONCURRENCY}
FILTERS = {
    "concurrency-detector": CONCURRENCY,
    "label-selector": ("label-selector-filter", {}),
    "prefix-affinity": ("prefix-cache-affinity-filter", {
        "threshold": "affinityThreshold", "explore_share": "explorationProbability",
        "max_ttft_penalty_ms": "maxTTFTPenaltyMs", "peak_prefill_tokens_per_s": "peakPrefillThroughput"}),
    "session-affinity": ("session-affinity-filter", {}),
    "utilization": ("utilization-filter", {"fallback_on_empty": "fallbackOnEmpty"}),
    "utilization-detector": UTILISATION,
}
CONDITIONS = {"max_active_requests": "active-requests", "max_running_requests": "running-requests",
              "max_waiting_requests": "waiting-queue", "max_kv_usage": "kv-cache-utilization"}
# scorer or filter -> key and value that the plugin does not have otherwise
FIXED = {"queue-depth": ("load", "waiting"), "lora-affinity": ("rule", "tiers"),
         "burst-prefix": ("balance_by", "requests")}


class Plugin(NamedTuple):
    """A plugin of llm-d-router.

    kind : its type. producer : the plugin of the records that it reads, without a name; None: none of its own.
    changed : "key = value: why", below the scorer or filter.
    """

    kind: str
    parameters: dict[str, Any]
    producer: dict[str, Any] | None = None
    changed: tuple[str, ...] = ()


def duration_of(seconds: float) -> str:
    """Return a time as Go's time.ParseDuration reads it."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def detector_of(name: str, keys: Any) -> Plugin:
    """Return a saturation detector: "utilisation" or "concurrency"."""
    kind, names = DETECTORS[name]
    parameters = renamed(keys, names)
    if name == "utilisation":
        parameters["metricsStalenessThreshold"] = duration_of(keys.staleness_s or NEVER_S)
        if "queueDepthThreshold" in parameters:
            parameters["queueDepthThreshold"] = int(keys.queue_depth_threshold)
    return Plugin(kind, parameters)


def scorer_of(scorer: Scorer, block_size: int | None) -> Plugin:
    """Return the plugin of a scorer in `SCORERS`.

    block_size : of the replicas, in tokens; None: not known.
    """
    kind, names = SCORERS[scorer.name]
    own = _OWN.get(scorer.name)
    return own(kind, scorer.parameters, block_size) if own else Plugin(kind, renamed(scorer.parameters, names))


def filter_of(name: str, keys: Any, block_size: int | None) -> Plugin:
    """Return the plugin of a filter in `FILTERS`."""
    kind, names = FILTERS[name]
    if name in ("utilization-detector", "concurrency-detector"):
        return detector_of("utilisation" if name.startswith("utilization") else "concurrency", keys)
    parameters = renamed(keys, names)
    if name == "prefix-affinity":
        return Plugin(kind, parameters, *_memory(keys, block_size))
    if name == "utilization":
        conditions = [{"metric": theirs, "maxValue": getattr(keys, ours)} for ours, theirs in CONDITIONS.items()
                      if getattr(keys, ours) is not None]
        return Plugin(kind, {"conditions": conditions} | parameters)
    if name == "label-selector":
        needed = {"key": POOL_LABEL, "operator": "In", "values": list(keys.pools)}
        return Plugin(kind, {"matchExpressions": [needed]}, changed=(f"pools: pods need the label {POOL_LABEL}",))
    if keys.ttl_s:
        parameters = {"strategy": "session_id", "sessionIdConfig": {"evictionTtlSeconds": keys.ttl_s}}
    return Plugin(kind, parameters)


def renamed(keys: Any, names: dict[str, str]) -> dict[str, Any]:
    """Return the parameters of a plugin for keys that differ from their defaults."""
    given = dict(given_values(keys))
    return {theirs: given[ours] for ours, theirs in names.items() if ours in given}


def _memory(keys: Any, block_size: int | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the record of prompts that a prefix score or filter reads, and changes to its blocks."""
    most = getattr(keys, "max_blocks", UNLIMITED)
    found = {"autoTune": False, "lruCapacityPerServer": keys.capacity_blocks,
             "maxPrefixBlocksToMatch": 0 if most == UNLIMITED else most, "maxPrefixTokensToMatch": 0}
    size = keys.block_tokens or block_size
    changed = (f"block_tokens = {size}: llm-d-router takes {LEAST_BLOCK} at least",) if (
        size and size < LEAST_BLOCK) else ()
    return {"type": PRODUCER, "parameters": found | ({"blockSizeTokens": size} if size else {})}, changed


def _prefix(kind: str, keys: Any, block_size: int | None) -> Plugin:
    return Plugin(kind, renamed(keys, SCORERS["prefix-affinity"][1]), *_memory(keys, block_size))


def _burst(kind: str, keys: Any, block_size: int | None) -> Plugin:
    parameters = {"windowDurationMs": round(1e3 * keys.window_s), "maxPerReplica": keys.most_together,
                  "minColocateBlocks": keys.min_colocate_blocks}
    parameters |= {"blockSizeTokens": block_size} if block_size else {}
    return Plugin(kind, {}, {"type": BURSTS, "parameters": parameters},
                  ("burst-prefix: the plugin token-producer is needed, too, for your model and a server of it",))


def _items(kind: str, keys: Any, block_size: int | None) -> Plugin:
    return Plugin(kind, {}, {"type": ITEMS, "parameters": {}},
                  (f"capacity_items = {keys.capacity_items}: llm-d-router limits megabytes, 2,048 for a replica",))


def _label(kind: str, keys: Any, block_size: int | None) -> Plugin:
    parameters = {"headerName": f"x-{keys.label.replace('_', '-')}", "labelKey": POOL_LABEL,
                  "stampResponseHeader": False}
    return Plugin(kind, parameters, changed=(
        f'label = "{keys.label}": sent in the header {parameters["headerName"]}; pods need the label {POOL_LABEL}',))


def _context(kind: str, keys: Any, block_size: int | None) -> Plugin:
    return Plugin(kind, {}, changed=(
        "context-length: pods need the label llm-d.ai/context-length-range, the pools' context_range",))


_OWN: dict[str, Callable[[str, Any, int | None], Plugin]] = {
    "prefix-affinity": _prefix, "burst-prefix": _burst, "mm-cache-affinity": _items, "header-label": _label,
    "context-length": _context}
