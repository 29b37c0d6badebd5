"""Settings of a simulated router in the words of a gateway, and of Dynamo's frontend.

Source: ai-dynamo/dynamo@021d6169, components/src/dynamo/common/configuration/groups/kv_router_args.py: environment
variables of the frontend.
"""
from typing import Any, NamedTuple

from simulator.config.experiment import Routing
from simulator.study.deployment.given_values import given_values

PLACE = "cluster.routing."
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


def frontend(routing: Routing, has_file: bool = False) -> Settings:
    """Return the variables of Dynamo's frontend, [] for routers that it does not have.

    has_file : whether a policy file says the queue.
    """
    if routing.policy not in MODES:
        return Settings([], frozenset())
    found, said = [("DYN_ROUTER_MODE", MODES[routing.policy])], {f"{PLACE}policy"}
    given = dict(given_values(routing, PLACE))
    for key, variable in VARIABLES.items():
        value = given.get(f"{PLACE}{key}")
        if value is None or (key.startswith("queue.") and (has_file or routing.queue.classes or value == "lcfs")):
            continue
        found.append((variable, _word(value != "approximate" if key == "overlap" else value)))
        said.add(f"{PLACE}{key}")
    return Settings([{"name": name, "value": value} for name, value in found], frozenset(said))


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
