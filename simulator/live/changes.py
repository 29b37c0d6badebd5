"""Keys of [serve] that an admin changes while the session runs.

A run of the record does not depend on them.
"""
from typing import Any, get_type_hints

import msgspec
from msgspec.structs import replace

from simulator.domain.serving import Serve, ServeLimits
from simulator.live.actions import NotPossible

KEYS = ("default_max_tokens", "stream_interval", "tool_calls", "metrics")
LIMITS = ("requests_per_s",)
INSTEAD = {
    "failures": "/admin/kill, partition, slow and restore act on replicas", "restarts": "/admin/kill stops a replica",
    "autoscaling": "/admin/scale, add and drain change the number of replicas",
    "serve": "only " + ", ".join(f"serve.{key}" for key in (*KEYS, *(f"limits.{key}" for key in LIMITS)))
             + " change during a session"}
OTHERWISE = "a run of the record has one value for the whole session; begin another one"


def changed(serve: Serve, key: str, value: Any) -> Serve:
    """Return the table with another value of a key, for requests from now on.

    Raises NotPossible, msgspec.ValidationError: the value is none.
    """
    first, *rest = key.split(".")
    if first == "serve" and len(rest) == 1 and rest[0] in KEYS:
        return replace(serve, **{rest[0]: _read(Serve, rest[0], value)})
    if first == "serve" and rest[:1] == ["limits"] and len(rest) == 2 and rest[1] in LIMITS:
        return replace(serve, limits=replace(serve.limits, **{rest[1]: _read(ServeLimits, rest[1], value)}))
    raise NotPossible(f"{key} cannot change: {INSTEAD.get(first.partition('[')[0], OTHERWISE)}")


def _read(table: type, name: str, value: Any) -> Any:
    return msgspec.convert(value, get_type_hints(table, include_extras=True)[name])
