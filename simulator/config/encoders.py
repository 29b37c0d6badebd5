"""Contradictions between encode pools, [embeddings] and the pools that compute prompts."""
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from simulator.config.layers import Path
from simulator.config.words import show

Fault = tuple[Path, str]
# Keys that have an effect in an encode pool, and in its tables. Other keys must equal the experiment's.
POOL_KEYS = {"name", "replicas", "serves", "role", "infer_type", "cost_per_hour"}
ENGINE_KEYS = {"max_num_seqs", "max_num_batched_tokens", "encoder"}
CONSUMER_KEYS = {"cache_tokens", "disable_chunked_mm_input"}
ROUTERS = ("round_robin", "random", "least_loaded", "power_of_two", "consistent_hash")
METRICS = ("requests", "tokens")
WHY = "an encode pool has encoders alone: no tokens, no KV, and no"


def others_of(sections: Mapping[str, Any], fault: Callable) -> tuple[Mapping[str, Any], Callable]:
    """Return the sections without encode pools, and a recorder of their faults.

    sections : of an experiment. fault : as `checks.check_all` takes it, with indices of all pools.
    """
    kept = [i for i, pool in enumerate(sections["pools"]) if pool.role != "encode"]

    def renumbered(path: Path, message: str) -> None:
        if len(path) > 1 and path[0] == "pools":
            path = ("pools", kept[path[1]], *path[2:])
        fault(path, message)

    return {**sections, "pools": tuple(sections["pools"][i] for i in kept)}, renumbered


def encoder_faults(sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
    """Yield the faults of encode pools, and of keys that need one.

    sections, missing : as in `checks.check_all`.
    """
    pools = sections["pools"]
    encode = [i for i, pool in enumerate(pools) if pool.role == "encode"]
    embeddings, cluster = sections["embeddings"], sections["cluster"]
    if not encode:
        why = 'there is no pool with role = "encode"'
        if embeddings not in (None, missing):
            yield ("embeddings",), f"nothing would be moved: {why}"
        if cluster is not missing and cluster.encode is not None:
            yield ("cluster", "encode"), f"there would be nothing to choose: {why}"
        return
    if embeddings is None:
        yield ("embeddings",), (
            f'missing table; pool "{pools[encode[0]].name}" with role = "encode" needs it for the transfer of '
            "embeddings to the replicas of prompts: for instance [embeddings] bandwidth_gb_per_s = 25.0")
    if cluster is not missing and cluster.encode is not None:
        yield from _router(cluster.encode)
    for i in encode:
        yield from (((("pools", i, *path)), message) for path, message in _encode_pool(pools, i, sections, missing))
    for i, pool in enumerate(pools):
        by = next((other.name for other in pools if other.role == "encode" and other.serves == pool.serves), None)
        if pool.role != "encode" and by is not None:
            yield from (((("pools", i, *path)), message) for path, message in _consumer(pool, by))


def _router(encode) -> Iterator[Fault]:
    """Refuse routers that need state encode replicas lack, and hash keys that do not distinguish items."""
    path, parameters = ("cluster", "encode"), encode.parameters
    if encode.policy not in ROUTERS:
        yield (*path, "policy"), (
            f'expected {", ".join(map(show, ROUTERS[:-1]))} or "{ROUTERS[-1]}", found "{encode.policy}": encode '
            "replicas have no KV, no prompts and no sessions that it could go by")
        return
    if getattr(parameters, "metric", METRICS[0]) not in METRICS:
        yield (*path, "metric"), (
            f'expected "requests", items that have not come yet, or "tokens", their embeddings, found '
            f'"{parameters.metric}": encode replicas report nothing else')
    if encode.policy == "consistent_hash":
        usual = type(parameters)()
        for key in ("key", "prefix_tokens"):
            if getattr(parameters, key) != getattr(usual, key):
                yield (*path, key), (
                    f"expected its default, {show(getattr(usual, key))}, found {show(getattr(parameters, key))}: items "
                    "are told apart by what they show, and by nothing else")


def _encode_pool(pools: Sequence, i: int, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
    """Refuse an encode pool without a pool that computes prompts, and keys without effect in it."""
    pool, names = pools[i], [each.name for each in pools]
    if pool.name in names[:i] or pool.name in [each.name for each in pools[i + 1:] if each.role != "encode"]:
        yield ("name",), f'two pools are named "{pool.name}"'
    if not any(each.serves == pool.serves and each.role != "encode" for each in pools):
        yield ("role",), ('"encode" takes a pool of another role that serves the same requests: nobody would compute '
                          "the prompts")
    if pool.replicas == 0:
        yield ("replicas",), "expected at least 1, found 0: encode pools stay as they are"
    if pool.engine.scheduler != "vllm":
        yield ("engine", "scheduler"), (
            f'expected "vllm", found "{pool.engine.scheduler}": encoders of their own are those of vLLM')
        return
    encoder = pool.engine.parameters.encoder
    if encoder is None or (encoder.us_per_embedding is None and encoder.tokens_per_s is None):
        yield ("engine", "encoder"), "expected us_per_embedding or tokens_per_s: it says how long encoders take"
    elif encoder.disable_chunked_mm_input:
        yield ("engine", "encoder", "disable_chunked_mm_input"), (
            f"expected false, found true: {WHY} chunks of prompts; give it to the pools that compute these")
    yield from _idle(pool, sections, missing)


def _idle(pool, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
    """Refuse keys of an encode pool that differ from the experiment's and have no effect."""
    for field in msgspec.structs.fields(pool):
        if field.name in sections:
            continue
        given = getattr(pool, field.name)
        if field.name not in POOL_KEYS and given != field.default:
            yield (field.name,), f"expected none, found {show(given)}: encode pools stay as they are"
    embeddings = sections["embeddings"]
    takes_model = embeddings not in (None, missing) and embeddings.bytes_per_embedding is None
    for name in ("model", "hardware", "kv_tiers"):
        if sections[name] is not missing and getattr(pool, name) != sections[name] and not (
                name == "model" and takes_model):
            yield (name,), f"expected as in [{name}], or none: {WHY} {name} that would act here"
    for name, acting in (("engine", ENGINE_KEYS), ("topology", {"replicas"}), ("latency", {"host"})):
        if sections[name] is not missing:
            yield from _differing((name,), getattr(pool, name), sections[name], acting)
    if sections["latency"] is not missing:
        yield from _differing(("latency", "host"), pool.latency.host, sections["latency"].host, {"iteration_us"})


def _differing(path: Path, own, common, acting: set[str]) -> Iterator[Fault]:
    """Yield the keys that differ from the experiment's and are not in `acting`, the keys with an effect."""
    if type(own) is not type(common):
        yield path, f"expected as in [{'.'.join(map(str, path))}]: {WHY} such table that would act here"
        return
    for name in own.__struct_fields__:
        one, two = getattr(own, name), getattr(common, name)
        if name == "parameters":
            yield from _differing(path, one, two, acting)
        elif name not in acting and one != two:
            yield (*path, name), (
                f"expected as in [{'.'.join(map(str, path))}], {_shown(two)}, found {_shown(one)}: {WHY} {name} that "
                "would act here")


def _shown(value: Any) -> str:
    return show(value) if isinstance(value, (str, int, float, bool)) else "none" if value is None else "a table"


def _consumer(pool, by: str) -> Iterator[Fault]:
    """Refuse encoder keys of a pool if an encode pool encodes its images."""
    encoder = getattr(pool.engine.parameters, "encoder", None)
    for name in encoder.__struct_fields__ if encoder is not None else ():
        if name not in CONSUMER_KEYS and getattr(encoder, name) is not None:
            yield ("engine", "encoder", name), (
                f'expected none, found {show(getattr(encoder, name))}: pool "{by}" encodes for this one; give it '
                "there, in [pools.engine.encoder] below it, and not in [engine.encoder]")
