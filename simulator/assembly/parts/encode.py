"""Pools that encode images for others, with [embeddings] and [cluster.encode]: operation, /encode_jobs, summary."""
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator import registry
from simulator.assembly.parts.base import Fault, Part, Rows
from simulator.assembly.parts.gateways import routers_of
from simulator.assembly.site import Site
from simulator.config.experiment import Section
from simulator.config.layers import Path
from simulator.config.words import show
from simulator.domain import records
from simulator.domain.embeddings import Embeddings, embedding_bytes
from simulator.errors import InputErrors, KeyFault
from simulator.results.encoding import encode_events, metrics_of, with_costs
from simulator.results.measured import measured_part
from simulator.results.summary_keys import COSTS, DISTRIBUTION, below, keys_of
from simulator.results.tables import without_spare

# Keys that have an effect in an encode pool, and in its tables. Other keys must equal the experiment's.
POOL_KEYS = {"name", "replicas", "serves", "role", "infer_type", "cost_per_hour"}
ENGINE_KEYS = {"max_num_seqs", "max_num_batched_tokens", "encoder"}
CONSUMER_KEYS = {"cache_tokens", "disable_chunked_mm_input"}
ROUTERS = ("round_robin", "random", "least_loaded", "power_of_two", "consistent_hash")
METRICS = ("requests", "tokens")
WHY = "an encode pool has encoders alone: no tokens, no KV, and no"
UNPRICED = ("us_per_embedding: missing; expected a number, or tokens_per_s: the vision tower of [model] has no known "
            "shape")
ABSENT = 'there is no pool with role = "encode"'


class EncodeRouting(Section, kw_only=True):
    """Choice of an item's encode replica, [cluster.encode], with the router's keys."""

    policy: Annotated[str, Meta(description=(
        "router of items to encode replicas: round_robin, random, least_loaded, power_of_two, or consistent_hash by "
        "the content of the item"))] = "round_robin"
    parameters: Annotated[Any, Meta(extra={"kind": "router"})]


class Encode(Part):
    """Pools that encode images for pools that compute the prompts."""

    keys = {
        "embeddings": Annotated[Embeddings | None, Meta(description=(
            "transfer of embeddings from encode pools to the replicas of prompts; required with encode pools"))],
        "cluster.encode": Annotated[EncodeRouting | None, Meta(description=(
            "choice of the encode replica of an item, with the keys of its router; absent: round robin"))]}
    tables = {"encode_jobs": Rows(without_spare(records.ENCODE_JOB), ABSENT)}
    summary_before = "itl_ms"
    summary_keys = {
        **keys_of(encode__jobs="images that reached an encode pool",
                  encode__completed="images with embeddings delivered",
                  encode__hits="images found in the cache, or computed for another of the batch",
                  encode__embeddings="embeddings computed",
                  encode__ttft_share="share of the TTFT of requests with images"),
        **keys_of("B", encode__bytes="of embeddings that were moved"),
        **keys_of("ms", encode__wait_ms=DISTRIBUTION + "first image at a replica to the last one's embeddings, of a "
                  "request",
                  encode__queue_ms=DISTRIBUTION + "image at a replica to the start of its batch",
                  encode__transfer_ms=DISTRIBUTION + "end of the batch to the arrival of the embeddings"),
        **below("encode.by_pool.NAME", {**keys_of(replicas="of the pool", batches="encoded"),
                                        **keys_of("s", busy_s="of all its replicas"),
                                        **keys_of(utilisation="busy time over the whole"), **COSTS}),
        **below("encode.replicas[]", {**keys_of(replica="number among those that encode", pool="its pool",
                                                batches="encoded"),
                                      **keys_of("s", busy_s="time that it encoded"),
                                      **keys_of(utilisation="of the whole run")})}
    settings = None
    notes = ()

    @classmethod
    def faults(cls, sections: Mapping[str, Any], missing: object) -> Iterator[Fault]:
        pools = sections["pools"]
        encode = [i for i, pool in enumerate(pools) if pool.role == "encode"]
        embeddings, cluster = sections["embeddings"], sections["cluster"]
        if not encode:
            why = ABSENT
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

    def prepare(self, sites: tuple) -> None:
        from simulator.engine.encoders.plan import EncodePlan

        moved, chosen = self.experiment.embeddings, self.experiment.cluster.encode
        router = registry.load("router", chosen.policy if chosen else "round_robin")
        self.settings = EncodePlan(
            pools=tuple(
                replace(_encode_pool_of(pool, moved.bytes_per_embedding), region=self._region_of(pool))
                for pool in self.experiment.encode_pools()),
            router=router, router_parameters=chosen.parameters if chosen else registry.parameters_of(router)(),
            bytes_per_s=moved.bandwidth_gb_per_s * 1e9, latency_ns=round(moved.latency_us * 1e3))
        self.notes = tuple(dict.fromkeys(note for pool in self.settings.pools for note in pool.notes))

    def _region_of(self, pool) -> int:
        regions = self.experiment.cluster.regions
        return 0 if regions is None else next(i for i, names in enumerate(regions.pools) if pool.name in names)

    def plan(self, plan, sink):
        """See Part; requests wait at the gateway for the embeddings of their items."""
        models = frozenset(pool.model for pool in self.settings.pools)
        return replace(super().plan(plan, sink), keeps_journeys=True, models_with_embeddings=models)

    def operations(self, sink) -> tuple:
        from simulator.engine.encoders.build import encoders_before

        in_regions = self.experiment.cluster.regions is not None
        return (partial(encoders_before, self.settings, assignment_of=(
            lambda gateway: routers_of(gateway.router).assignment) if in_regions else None),)

    def events(self, run, window) -> Iterable[str]:
        return encode_events(run, window)

    def summary(self, run, summary: dict) -> dict:
        done, measured = run.records["encode"], run.workload.measured
        return metrics_of(done if measured is None else done.of(measured), measured_part(run), run) | {
            "cost_by_node": with_costs(summary["cost_by_node"], run), "diagnosis": self.notes}


def _encode_pool_of(pool, given_bytes: float | None):
    """Return a pool as the engine takes it."""
    from simulator.engine.encoders.plan import EncodePool

    parameters = pool.engine.parameters
    encoder, tokens = parameters.encoder, parameters.max_num_batched_tokens
    times = None if encoder.is_priced else Site(pool, f"pools.{pool.name}.").tower_times
    if times is None and not encoder.is_priced:
        raise InputErrors([KeyFault(f"pools.{pool.name}.engine.encoder.{UNPRICED}")])
    stored = Site(pool, f"pools.{pool.name}.").stored if given_bytes is None else None
    if given_bytes is None and stored is None:
        raise InputErrors([KeyFault("embeddings.bytes_per_embedding: missing; expected a number, or [model]")])
    return EncodePool(
        name=pool.name, model=pool.serves, replicas=pool.at_start, embedding_ns=encoder.embedding_us * 1e3,
        iteration_ns=pool.latency.host.iteration_us * 1e3,
        max_embeddings=encoder.max_num_encoder_input_tokens or tokens, max_jobs=parameters.max_num_seqs,
        cache_embeddings=encoder.cache_tokens or tokens, embedding_bytes=given_bytes or embedding_bytes(stored),
        cost_per_hour=pool.cost_per_hour,
        node=pool.topology.node or (pool.hardware.name if pool.hardware else ""),
        item_ns=times and times.item_ns, least_ns=times.least_ns if times else 0.0,
        notes=times.notes if times else ())


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
    if encoder is None or not (encoder.is_priced or (pool.model and pool.hardware)):
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
