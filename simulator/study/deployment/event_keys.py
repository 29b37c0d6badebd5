"""vLLM's --kv-events-config as [serve.kv_events], which `serve` publishes, and the flag of that table.

Source of names and defaults: vLLM 0.33.0, config/kv_events.py.
"""
import json
import re
from typing import Any

from simulator.domain.serving import KvEvents, Serve
from simulator.server_line.facts.answers import Answer
from simulator.study.deployment.keyed import Keyed

FLAG, TABLE = "kv_events_config", "serve.kv_events"
ENDPOINT = re.compile(r"tcp://[^/\s]+:[0-9]{1,5}")      # that serve can publish at
SIZES = ("buffer_steps", "hwm")
MAPS_SINCE = (0, 33)                                    # version of vLLM; those before send events as arrays


def say_events(keyed: Keyed, version: str, answer: Answer) -> None:
    """Take the events' endpoints, topic and sizes, where the engine publishes any."""
    given = answer.given.get(FLAG)
    if not isinstance(given, dict) or not _is_on(given):
        return
    endpoints = {key: given[key] for key in ("endpoint", "replay_endpoint") if given.get(key)}
    if wrong := [str(value) for value in endpoints.values() if not ENDPOINT.fullmatch(str(value))]:
        keyed.left[FLAG] = f"KV events over {wrong[0]}: serve takes tcp://HOST:PORT alone"
        return
    if "endpoint" not in endpoints:
        keyed.keys[f"{TABLE}.endpoint"] = ("tcp://127.0.0.1:5557", "engine: tcp://*:5557; here for this machine alone")
    keyed.keys.update({f"{TABLE}.{key}": (value, "given") for key, value in endpoints.items()})
    keyed.keys[f"{TABLE}.topic"] = (given.get("topic", ""), "given" if "topic" in given else "engine: its default")
    keyed.keys.update({f"{TABLE}.{key}": (given[key], "given") for key in SIZES if key in given})
    if tuple(map(int, version.split("."))) < MAPS_SINCE:
        keyed.keys["serve.kv_event_encoding"] = ("array", f"vLLM {version}: events as arrays")
    keyed.taken[FLAG] = TABLE
    if "max_queue_size" in given:
        keyed.left[FLAG] = "max_queue_size: events that wait to be sent; the others are keys"


def events_flag(serve: Serve | None) -> tuple[tuple[str, str], ...]:
    """Return the flag and its value; (): there are no events."""
    if serve is None or serve.kv_events is None:
        return ()
    events, usual = serve.kv_events, KvEvents()
    said = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": events.endpoint}
    said |= {key: value for key in ("replay_endpoint", "topic", *SIZES)
             if (value := getattr(events, key)) != getattr(usual, key)}
    return (("--kv-events-config", json.dumps(said)),)


def _is_on(given: dict[str, Any]) -> bool:
    """Return whether the engine publishes; without a publisher it does by ZeroMQ."""
    return bool(given.get("enable_kv_cache_events")) and given.get("publisher", "zmq") == "zmq"
