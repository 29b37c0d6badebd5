"""Keys of a pool, as they are collected from the resolved values of a server, and the flags behind them."""
from typing import Any, NamedTuple

from simulator.server_line.facts.answers import Answer

# Defaults of the engine and of our keys; keys with these values are left out.
USUAL = {"topology.pipeline_parallel": 1, "topology.data_parallel": 1, "topology.decode_context_parallel": 1,
         "topology.prefill_context_parallel": 1, "topology.cp_kv_cache_interleave_size": 1,
         "topology.dcp_comm_backend": "ag_rs", "engine.long_prefill_token_threshold": 0, "engine.watermark": 0.0,
         "engine.prefill_schedule_interval": 1, "engine.task": "generate",
         "engine.long_prefill_token_threshold_adaptive": False, "engine.disable_hybrid_kv_cache_manager": False,
         "engine.scheduler_recv_interval": 1, "engine.batch_wait_timeout_iters": 0,
         "engine.batch_wait_max_tokens_ratio": 0.0, "model.kv_cache_dtype": "auto"}


class Keyed(NamedTuple):
    """Keys of a pool.

    keys : key -> (value, comment). taken : flag -> our key. left : flags without a key, with their effects.
    idle : flags without effect beside others.
    """

    keys: dict[str, tuple[Any, str]]
    taken: dict[str, str]
    left: dict[str, str]
    idle: set[str]


def of_engine(keys: dict[str, tuple[Any, str]]) -> dict[str, tuple[Any, str]]:
    """Return the keys without those of the experiment's [serve], which are no pool's."""
    return {key: said for key, said in keys.items() if not key.startswith("serve.")}


def value_of(answer: Answer, place: str) -> Any:
    """Return the value at "table.key" of an answer; None: there is none."""
    value: Any = answer.values
    for name in place.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


def comment_of(answer: Answer, place: str) -> str:
    """Return the comment of a key: the source of its value, and the reason."""
    origin = answer.origins.get(place)
    if origin is None:
        return ""
    return f"given: {origin.why}" if origin.by == "flag" else f"{origin.by}: {origin.why}" if origin.why else origin.by


def say(keyed: Keyed, key: str, answer: Answer, place: str, value: Any = None) -> None:
    """Write a key with the value at a place, unless it is usual or absent."""
    value = value_of(answer, place) if value is None else value
    if value is None or (key in USUAL and USUAL[key] == value):
        return
    keyed.keys[key] = (value, comment_of(answer, place))


def take(keyed: Keyed, answer: Answer, flag: str, key: str) -> None:
    """Note that a given flag is taken as a key."""
    if flag in answer.given:
        keyed.taken[flag] = key


def drop(keyed: Keyed, flag: str) -> None:
    """Drop the key of a flag that has no effect beside others."""
    keyed.keys.pop(keyed.taken.pop(flag), None)
    keyed.idle.add(flag)
