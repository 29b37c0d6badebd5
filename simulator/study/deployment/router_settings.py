"""Settings of a simulated router in the words of llm-d-router and of Dynamo.

Sources: llm-d/llm-d-router (2026-08), pkg/epp/framework/plugins: types and parameters of scorers, of pickers and of
approx-prefix-cache-producer; deploy/config for the form. ai-dynamo/dynamo@021d6169,
components/src/dynamo/common/configuration/groups/kv_router_args.py: environment variables of the frontend.
"""
from collections.abc import Iterator
from typing import Any, NamedTuple

from simulator.config.experiment import Routing, Scorer
from simulator.errors import InputErrors, KeyFault
from simulator.study.deployment.given_values import given_values

PLACE = "cluster.routing."
PRODUCER = "approx-prefix-cache-producer"
UNLIMITED = 2**31 - 1
LEAST_BLOCK = 64                # tokens, of the record of prompts
# scorer -> type of the plugin, {key: its parameter}
SCORERS = {
    "active-requests": ("active-request-scorer", {"idle_threshold": "idleThreshold", "max_busy_score": "maxBusyScore"}),
    "kv-utilization": ("kv-cache-utilization-scorer", {}),
    "load-aware": ("load-aware-scorer", {"threshold_requests": "threshold"}),
    "lora-affinity": ("lora-affinity-scorer", {}),
    "no-hit-lru": ("no-hit-lru-scorer", {}),
    "prefix-affinity": ("prefix-cache-scorer", {"length_weight": "prefixLengthWeight", "scale_tokens": "maxModelLen"}),
    "queue-depth": ("queue-scorer", {}),
    "running-requests": ("running-requests-size-scorer", {}),
    "session-affinity": ("session-affinity-scorer", {}),
    "token-load": ("token-load-scorer", {"threshold_tokens": "queueThresholdTokens"}),
}
# scorer -> key and value that the plugin does not have otherwise
FIXED = {"queue-depth": ("load", "waiting"), "lora-affinity": ("rule", "tiers")}
PICKERS = {"max-score": "max-score-picker", "random": "random-picker", "weighted-random": "weighted-random-picker"}
MODES = {"dynamo": "kv", "random": "random"}
VARIABLES = {
    "overlap_credit": "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT", "credit_decay": "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY",
    "prefill_weight": "DYN_ROUTER_PREFILL_LOAD_SCALE", "request_weight": "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT",
    "host_credit": "DYN_ROUTER_HOST_CACHE_HIT_WEIGHT", "disk_credit": "DYN_ROUTER_DISK_CACHE_HIT_WEIGHT",
    "temperature": "DYN_ROUTER_TEMPERATURE", "track_prefill_tokens": "DYN_ROUTER_TRACK_PREFILL_TOKENS",
    "assume_kv_reuse": "DYN_ROUTER_ASSUME_KV_REUSE", "output_blocks": "DYN_ROUTER_TRACK_OUTPUT_BLOCKS",
    "overlap": "DYN_ROUTER_USE_KV_EVENTS", "approximate_ttl_s": "DYN_ROUTER_TTL_SECS",
    "approximate_policy": "DYN_ROUTER_APPROXIMATE_CACHE_POLICY", "predicted_ttl_s": "DYN_ROUTER_PREDICTED_TTL_SECS",
    "queue.threshold": "DYN_ROUTER_QUEUE_THRESHOLD", "queue.order": "DYN_ROUTER_QUEUE_POLICY"}


class Settings(NamedTuple):
    """A router in the words of a gateway.

    written : document of YAML, or variables with their values. said : keys of the experiment that it holds.
    changed : "key = value: why", values that the gateway changes.
    """

    written: Any
    said: frozenset[str]
    changed: tuple[str, ...] = ()


def endpoint_picker(routing: Routing, block_size: int | None) -> Settings:
    """Return llm-d-router's EndpointPickerConfig of the router `weighted`.

    block_size : of the replicas, in tokens; None: not known.

    Raises
    ------
    InputErrors
        Another router; scorers, their keys or filters that llm-d-router does not have: the others alone would be
        another policy.
    """
    if faults := [KeyFault(f"{PLACE}{fault}") for fault in _faults(routing)]:
        raise InputErrors(faults)
    producers, scorers, weights = [], [], []
    for scorer in routing.scorers:
        kind, parameters = SCORERS[scorer.name][0], _parameters(scorer)
        number = sum(each["type"] == kind for each in scorers) + 1
        name = kind if number == 1 else f"{kind}-{number}"
        if scorer.name == "prefix-affinity":
            producer = PRODUCER if number == 1 else f"{PRODUCER}-{number}"
            producers.append({"name": producer, "type": PRODUCER, "parameters": _memory(scorer, block_size)})
            parameters["prefixMatchInfoProducerName"] = producer
        scorers.append({"name": name, "type": kind} | ({"parameters": parameters} if parameters else {}))
        weights.append({"pluginRef": name, "weight": scorer.weight})
    picker = PICKERS[routing.parameters.picker]
    document = {
        "apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig",
        "plugins": [{"type": "single-profile-handler"}, *producers, *scorers, {"type": picker}],
        "schedulingProfiles": [{"name": "default", "plugins": [*weights, {"pluginRef": picker}]}]}
    sizes = {each["parameters"].get("blockSizeTokens", LEAST_BLOCK) for each in producers}
    changed = tuple(f"{PLACE}scorers[].block_tokens = {size}: llm-d-router takes {LEAST_BLOCK} at least"
                    for size in sorted(sizes) if size < LEAST_BLOCK)
    said = frozenset(f"{PLACE}{key}" for key in ("policy", "scorers", "picker", "profile"))
    return Settings(document, said, changed)


def frontend(routing: Routing) -> Settings:
    """Return the variables of Dynamo's frontend, [] for routers that it does not have."""
    if routing.policy not in MODES:
        return Settings([], frozenset())
    found, said = [("DYN_ROUTER_MODE", MODES[routing.policy])], {f"{PLACE}policy"}
    given = dict(given_values(routing, PLACE))
    for key, variable in VARIABLES.items():
        value = given.get(f"{PLACE}{key}")
        if value is None or (key.startswith("queue.") and (routing.queue.classes or value == "lcfs")):
            continue
        found.append((variable, _word(value != "approximate" if key == "overlap" else value)))
        said.add(f"{PLACE}{key}")
    return Settings([{"name": name, "value": value} for name, value in found], frozenset(said))


def _faults(routing: Routing) -> Iterator[str]:
    if routing.policy != "weighted":
        yield f'policy: --as llm-d-router writes scores: expected "weighted", found "{routing.policy}"'
        return
    for number, scorer in enumerate(routing.scorers):
        if scorer.name not in SCORERS:
            yield f'scorers[{number}].name: expected one of {", ".join(SCORERS)}, found "{scorer.name}"'
        elif scorer.name in FIXED:
            key, value = FIXED[scorer.name]
            if (found := getattr(scorer.parameters, key)) != value:
                yield f'scorers[{number}].{key}: --as llm-d-router: expected "{value}", found "{found}"'
    if routing.filters:
        yield f"filters: --as llm-d-router writes none, found {', '.join(each.name for each in routing.filters)}"


def _parameters(scorer: Scorer) -> dict[str, Any]:
    """Return the parameters of a plugin that differ from its defaults."""
    given, names = dict(given_values(scorer.parameters)), SCORERS[scorer.name][1]
    return {theirs: given[ours] for ours, theirs in names.items() if ours in given}


def _memory(scorer: Scorer, block_size: int | None) -> dict[str, Any]:
    """Return the parameters of the record of prompts that a prefix score reads."""
    keys = scorer.parameters
    most = 0 if keys.max_blocks == UNLIMITED else keys.max_blocks
    found = {"autoTune": False, "lruCapacityPerServer": keys.capacity_blocks, "maxPrefixBlocksToMatch": most,
             "maxPrefixTokensToMatch": 0}
    size = keys.block_tokens or block_size
    return found | ({"blockSizeTokens": size} if size else {})


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
