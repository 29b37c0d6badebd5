"""Clusters whose prompts are computed apart."""
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from simulator import registry
from simulator.domain import records
from simulator.domain.layer_groups import LayerGroup, LayerGroups
from simulator.domain.protocols import HABITS
from simulator.engine.build import build
from simulator.engine.encoders.build import encoders_before
from simulator.engine.hand_over.build import Split
from simulator.engine.hand_over.plan import HandOverPlan, Pair, Port
from simulator.engine.operations.upkeep import Upkeep
from simulator.engine.output.recorder import Recorder
from simulator.engine.plan import ClusterPlan, GatewayPlan, Hooks, Pool
from simulator.latency.linear import Linear
from simulator.routing.policies.round_robin import RoundRobin, RoundRobinParameters
from simulator.routing.policies.weighted import Weighted, WeightedParameters
from simulator.routing.scoring.load import ActiveRequests, ActiveRequestsParameters
from simulator.scheduling.vllm import Vllm, VllmParameters
from support.blis_scenarios import small_scenario
from support.migration import constant_latency
from support.random_scenarios import random_description
from support.scenario import load
from support.sglang import random_parameters

MS = 1_000_000
FRONT = GatewayPlan(RoundRobin, RoundRobinParameters())
COUNTING = GatewayPlan(Weighted, WeightedParameters(), scorers=((ActiveRequests, 1.0, ActiveRequestsParameters()),))
TOKEN_BYTES = 1000.0
LINK = Port(outer_bytes_per_s=1e6)          # a token takes 1 ms


@dataclass
class Outcome:
    """What a run came to.

    requests, transfers, legs, iterations, replicas, journeys : structured arrays. run : Run. token_ms : {row: [ms]}.
    cluster, hand_over : the machine itself. plan : its HandOverPlan.
    """

    requests: Any
    transfers: Any
    legs: Any
    iterations: Any
    replicas: Any
    run: Any
    token_ms: dict
    cluster: Any
    hand_over: Any
    plan: Any

    def ms(self, name, table="requests"):
        return [time / MS for time in getattr(self, table)[name]]


class _Sink:
    def __init__(self):
        self.iteration_rows, self.token_times = [], {}

    def iterations(self, rows):
        self.iteration_rows += rows.tolist()

    def tokens(self, rows):
        for row in rows:
            self.token_times.setdefault(int(row["request"]), []).extend([int(row["time_ns"])] * int(row["tokens"]))


def serve(workload, roles=("prefill", "decode"), *, parameters=None, latency=None, plan=None, cache=(), tier=None,
          observer=None, scheduler=None, encode=None, **given):
    """Run a workload on a pool for each role; return its Outcome.

    roles : of each pool; or (role, replicas). plan : fields of HandOverPlan. cache : fields of Pool, of all.
    tier : makes the KV tier of a replica; or {role: one that does}. observer : sees every batch, with the `cluster`
    that it is given. given : of ClusterPlan. encode : EncodePlan; None: no encode pools. scheduler : None: that of the
    parameters.
    """
    scheduler = scheduler or (scheduler_of(parameters) if parameters else Vllm)
    roles = [(role, 1) if isinstance(role, str) else role for role in roles]
    cache = {"num_gpu_blocks": 1000, "block_size": 16, "max_model_len": 4096} | dict(cache)
    pools = tuple(Pool(scheduler, parameters or VllmParameters(), latency or constant_latency(), name=f"{role}{i}",
                       role=role, replicas=count, tier=tier.get(role) if isinstance(tier, dict) else tier, **cache)
                  for i, (role, count) in enumerate(roles))
    groups = cache["layer_groups"].groups if cache.get("layer_groups") else ()
    block_bytes = tuple(TOKEN_BYTES / len(groups) * group.block_size for group in groups)
    pairs = {(i, k): Pair(TOKEN_BYTES, block_bytes=block_bytes, layer_frac=0.25)
             for i, (one, _) in enumerate(roles) for k, (other, _) in enumerate(roles)
             if one != "decode" and other != "prefill"}
    settings = HandOverPlan(**{"ports": (LINK,) * len(pools), "pairs": pairs, "prefill_front": FRONT,
                               "decode_front": FRONT} | (plan or {}))
    if encode is not None:
        given |= {"operations": (partial(encoders_before, encode), *given.get("operations", ())),
                  "models_with_embeddings": frozenset(pool.model for pool in encode.pools), "keeps_journeys": True}
    sink, made = _Sink(), replace(workload, requests=workload.requests.copy())
    cluster = build(made, ClusterPlan(pools, FRONT, **{"split": Split(settings)} | given),
                    Hooks(recorder=Recorder(sink, iterations=True, tokens=True), observer=observer))
    if observer is not None:
        observer.cluster = cluster
    run = cluster.run()
    return Outcome(made.requests, run.transfers, run.legs, sink.iteration_rows, run.replicas, run,
                   {row: [each / MS for each in times] for row, times in sink.token_times.items()}, cluster,
                   next((each for each in cluster.operations if each.continues), None), settings)


def scheduler_of(parameters):
    """Return the built-in scheduler whose parameters these are."""
    loaded = (registry.load("scheduler", name) for name in registry.KINDS["scheduler"].entries)
    return next(each for each in loaded if isinstance(parameters, each.Parameters))


def random_case(seed):
    """Return what `serve` takes for a random scenario in which prompts are computed apart."""
    rng = Random(seed)
    description = random_description(seed, beyond_vllm=True)
    description["options"] |= {"async_scheduling": rng.random() < 0.5, "num_speculative_tokens": 0, "spec_lookahead": 0,
                               "vllm_version": "0.32", "enable_chunked_prefill": True}
    scenario = load(description)
    latency = Linear(scenario.prices)
    latency.set_host(scenario.host.iteration_us, 0.0)
    roles = rng.choice([("prefill", "decode"), (("prefill", 2), ("decode", 2)), ("decode", ("prefill", 3)),
                        ("prefill", "both", "decode"), (("both", 2), "prefill"), ("prefill", ("decode", 3))])
    plan = {"contention": rng.choice(["fair", "none", "at_start", "fifo"]), "base_ns": rng.choice([0, 0, 3 * MS]),
            "handshake_ns": rng.choice([0, 0, 7 * MS]), "hop_ns": rng.choice([0, 0, 2 * MS]),
            "notice_ns": rng.choice([0, 0, MS]), "takes_whole_prompt": rng.random() < 0.3,
            "notices_at_start": rng.random() < 0.5, "ports": (Port(rng.choice([2e5, 1e6, 1e8])),) * len(roles),
            "decode_first": rng.random() < 0.5 or any("both" in role for role in roles)}
    blocks = scenario.cache["num_gpu_blocks"] * (8 if any("both" in role for role in roles) else 1)
    cache = scenario.cache | {"host": scenario.host, "num_gpu_blocks": blocks}
    has_groups = rng.random() < 0.3
    if has_groups:
        cache |= {"layer_groups": _some_groups(rng, cache), "num_gpu_blocks": 2 * blocks}
        plan["takes_whole_prompt"] = False
    plan |= random_protocol(rng, {"sglang", "simai"} if has_groups else ())
    if has_groups:
        plan |= {"granularity": "prompt", "has_first_token": False}
    if plan["place"] != "asked":
        plan["decode_first"] = True
    if seed % 2:                            # with counts of what a decode replica is promised, where it is chosen early
        plan["decode_front"] = COUNTING
    if plan["order"] != "source":           # SGLang's rule asks for room that a small replica never has
        plan["decode_first"], cache["num_gpu_blocks"] = True, 16 * scenario.cache["num_gpu_blocks"]
    return scenario.workload, {"roles": roles, "parameters": scenario.parameters, "latency": latency, "plan": plan,
                               "cache": cache}


def _some_groups(rng, cache):
    """Return one of full attention beside another."""
    block_size = cache["block_size"]
    kind = rng.choice(["sliding_attention", "chunked_attention", "linear_attention"])
    full = LayerGroup(kind="full_attention", block_size=block_size)
    if kind == "linear_attention":
        aligned = cache["enable_prefix_caching"]
        states = LayerGroup(kind=kind, block_size=block_size if aligned else cache["max_model_len"], aligned=aligned)
        return LayerGroups(groups=(full, states), chunk_alignment=block_size if aligned else 0)
    other = LayerGroup(kind=kind, block_size=block_size, window=rng.choice([1, 8, 33, 100]))
    return LayerGroups(groups=tuple(rng.sample([other, full], 2)))


def random_blis_case(seed):
    """Return the same for a random scenario under BLIS's protocol."""
    rng, scenario = Random(seed), small_scenario(seed)
    is_upstream, habits = rng.random() < 0.5, HABITS["blis"]
    latency = Linear(scenario.prices)
    latency.set_host(scenario.host.iteration_us, 1.0 if is_upstream else 0.0)
    roles = rng.choice([("prefill", "decode"), (("prefill", 2), ("decode", 2)), ("prefill", "both", "decode"),
                        ("both", "prefill"), ("prefill", ("decode", 3))])
    plan = {"contention": rng.choice(["fair", "none", "at_start"]), "base_ns": rng.choice([0, 0, 3 * MS]),
            "takes_whole_prompt": rng.random() < 0.3, "ports": (Port(rng.choice([2e5, 1e6, 1e8])),) * len(roles),
            "decode_first": True, "place": habits.place,
            "has_first_token": True, "resolution_ns": 1000}
    blocks = scenario.cache["num_gpu_blocks"] * rng.choice([1, 2, 8])
    return scenario.workload, {
        "roles": roles, "latency": latency, "plan": plan,
        "parameters": structs.replace(scenario.parameters, upstream_compat=is_upstream),
        "cache": scenario.cache | {"host": scenario.host, "num_gpu_blocks": blocks}}


def random_vidur_case(seed):
    """Return the same for a random scenario under vidur-alibabacloud's protocol and a scheduler of Vidur's."""
    rng, scenario = Random(seed), small_scenario(seed)
    latency, workload = Linear(scenario.prices), scenario.workload
    latency.set_host(scenario.host.iteration_us, 0.0)
    name = rng.choice(["split_wise", "orca", "faster_transformer", "sarathi"])
    scheduler, keys = registry.load("scheduler", name), {"batch_size_cap": rng.choice([1, 4, 16])}
    if name == "sarathi":
        keys |= {"chunk_size": rng.choice([5, 64]), "watermark_blocks_fraction": rng.choice([0.0, 0.2])}
    else:
        keys["reservation"] = rng.choice(["max_model_len", "max_tokens", "expected_tokens", "expected_tokens"])
    if name == "split_wise":
        keys["max_tokens_in_batch"] = rng.choice([40, 300, 4096])
    if keys.get("reservation") == "expected_tokens":
        lengths = workload.outcomes["output_tokens"]
        workload.demands["expected_tokens"] = [rng.choice([-1, 1, 1, max(length // 2, 1), 2 * length])
                                               for length in lengths.tolist()]
    roles = rng.choice([("prefill", "decode"), (("prefill", 2), ("decode", 2)), ("prefill", ("decode", 3))] + (
        [] if name == "split_wise" else [("prefill", "both", "decode"), ("both", "prefill")]))
    plan = {"contention": "none", "takes_whole_prompt": True, "ports": (Port(rng.choice([1e6, 1e8])),) * len(roles),
            "decode_first": True, "place": "afterwards", "has_first_token": True, "sends_token": True,
            "unawaited": rng.random() < 0.4}
    return workload, {
        "roles": roles, "latency": latency, "plan": plan, "scheduler": scheduler,
        "parameters": scheduler.Parameters(**keys), "cache": scenario.cache | {
            "host": scenario.host, "num_gpu_blocks": max(scenario.cache["num_gpu_blocks"] // rng.choice([1, 2]), 1)}}


def random_sglang_case(seed):
    """Return the same for a random scenario under SGLang's scheduler and protocol."""
    rng, habits = Random(f"{seed}: sglang"), HABITS["sglang"]
    scenario = load(random_description(seed, beyond_vllm=True))
    latency = Linear(scenario.prices)
    latency.set_host(scenario.host.iteration_us, 0.0)
    roles = rng.choice([("prefill", "decode"), (("prefill", 2), ("decode", 2)), ("decode", ("prefill", 3)),
                        ("prefill", ("decode", 3))])
    plan = {"contention": rng.choice(["fair", "none", "at_start", "fifo"]), "base_ns": rng.choice([0, 0, 3 * MS]),
            "handshake_ns": rng.choice([0, 0, 7 * MS]), "notice_ns": rng.choice([0, 0, MS]), "decode_first": True,
            "takes_whole_prompt": rng.random() < 0.3, "ports": (Port(rng.choice([2e5, 1e6, 1e8])),) * len(roles),
            "order": habits.order, "place": habits.place, "pushes": habits.pushes, "has_first_token": True,
            "granularity": rng.choice(habits.granularities), "reserved_tokens": rng.choice([0, 0, 8, 32])}
    cache = scenario.cache | {"host": scenario.host, "enable_prefix_caching": rng.random() < 0.6,
                              "num_gpu_blocks": scenario.cache["num_gpu_blocks"] * rng.choice([1, 1, 2, 8])}
    parameters = structs.replace(
        random_parameters(rng, rng.choice([1, 2, scenario.parameters.max_num_seqs])), max_queued_requests=None,
        enable_mixed_chunk=False, prefill_decode_interval=0, prefill_decode_interval_min_bs=0)
    return scenario.workload, {"roles": roles, "parameters": parameters, "latency": latency, "plan": plan,
                               "cache": cache}


def random_protocol(rng, without=()):
    """Return fields of a HandOverPlan, as one of the protocols that go with vLLM's scheduler has them."""
    habits = HABITS[rng.choice([name for name, each in HABITS.items()
                                if each.place != "reserved" and name not in without])]
    return {"order": habits.order, "place": habits.place, "pushes": habits.pushes, "sends_token": habits.sends_token,
            "granularity": rng.choice(habits.granularities),
            "has_first_token": rng.choice(habits.first_tokens) == "prefill",
            "reserved_tokens": rng.choice([0, 8]) if habits.reserved_tokens >= 0 else -1,
            "unawaited": habits.place == "afterwards" and rng.random() < 0.5}


def upkeep(failures=(), **given):
    """Return the operations of a cluster in which replicas fail, come or go; `given` : of Upkeep."""
    return (partial(Upkeep, failures=failures, **given),)


def moments_of(outcome):
    """Return every instant at which something happened in a run, in ns."""
    found = set()
    for table, names in (("requests", ("arrival_ns", "scheduled_ns", "first_token_ns", "completed_ns")),
                         ("transfers", ("prefill_done_ns", "start_ns", "end_ns")),
                         ("legs", ("sent_ns", "enqueued_ns", "scheduled_ns", "ended_ns"))):
        for name in names:
            found |= {int(time) for time in getattr(outcome, table)[name] if time >= 0}
    fields = records.ITERATION.names
    for row in outcome.iterations:
        start = row[fields.index("start_ns")]
        found |= {start, start + row[fields.index("duration_ns")]}
    return sorted(found)
