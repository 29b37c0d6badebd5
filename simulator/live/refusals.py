"""Experiments that cannot be served live yet, and why."""
import math
from collections.abc import Iterator

from simulator.config.experiment import Experiment, Pool
from simulator.config.parts import keys_in
from simulator.domain.traits import OutputKnowledge
from simulator.errors import InputErrors, KeyFault
from simulator.live.fleet import LIVE_KEYS, LiveFleet

# Keys of parts that only add to results: the run of the recorded session has them.
ONLY_RESULTS = ("output.replica_samples_s", "output.decisions", "prices", "power", "carbon", "electricity",
                "pools[].cost_per_hour", "serve")
# Policies that know of a request no more than its prompt and its priority, none of it before it comes.
SCHEDULERS = ("faster_transformer", "orca", "sarathi", "sglang", "vllm")
AUTOSCALERS = ("apa", "hpa", "kpa", "queue", "utilisation")
ROUTERS = ("always_busiest", "cache_aware", "dynamo", "least_loaded", "lor", "power_of_two", "prefix_threshold",
           "random", "round_robin", "weighted", "weighted_random")
SCORERS = ("active-requests", "kv-utilization", "load-aware", "load-balance", "precise-prefix-cache", "prefix-affinity",
           "queue-depth", "running-requests", "token-load")


def check(experiment: Experiment) -> None:
    """Raise InputErrors: some key would have no effect, or another one, here."""
    if faults := [KeyFault(fault) for fault in _faults(experiment)]:
        raise InputErrors(faults)


def check_blocks(fleet: LiveFleet) -> None:
    """Raise InputErrors: a text of the longest length does not fit some replica."""
    caches = [replica.rank.kv for replica in fleet.cluster.replicas]
    if (most := min(kv.num_blocks * kv.block_size for kv in caches)) < fleet.max_model_len:
        raise InputErrors([KeyFault(
            f"engine.max_model_len: expected at most {most}, the tokens of all KV blocks of a replica, found "
            f"{fleet.max_model_len}: a client may ask for a text of that length")])


def _faults(experiment: Experiment) -> Iterator[str]:
    for key in keys_in(experiment):
        if key not in (*ONLY_RESULTS, *LIVE_KEYS):
            yield f"{key}: serve cannot do this yet; leave it out"
    scaling = experiment.autoscaling
    if scaling is not None and scaling.policy not in AUTOSCALERS:
        yield _one_of("autoscaling.policy", scaling.policy, AUTOSCALERS)
    if not math.isinf(experiment.horizon_s):
        yield f"horizon_s: expected inf, found {experiment.horizon_s:g}: --duration ends a session"
    for key in ("images", "videos"):
        if getattr(experiment.workload, key) is not None:
            yield f"workload.{key}: clients send the prompts, and serve reads text alone; leave it out"
    if experiment.workload.output_knowledge != OutputKnowledge():
        yield "workload.output_knowledge: no policy can know the length of an answer that nobody has asked for yet"
    yield from _front_faults(experiment)
    pools = experiment.all_pools()
    for pool in pools:
        yield from _pool_faults(pool, f"pools.{pool.name}." if experiment.pools else "")
    if len({pool.latency.host.shift_ns for pool in pools}) > 1:
        yield ("pools: expected one value of latency.host.output_token_us in all: it shifts the instant at which a "
               "client leaves its replica")


def _front_faults(experiment: Experiment) -> Iterator[str]:
    cluster = experiment.cluster
    if cluster.admission.policy != "always":
        yield _one_of("cluster.admission.policy", cluster.admission.policy, ("always",))
    if cluster.gateway_queue is not None:
        yield "cluster.gateway_queue: serve cannot do this yet; leave it out"
    routing = cluster.routing
    if routing.policy not in ROUTERS:
        yield _one_of("cluster.routing.policy", routing.policy, ROUTERS)
    for scorer in routing.scorers:
        if scorer.name not in SCORERS:
            yield _one_of("cluster.routing.scorers", scorer.name, SCORERS)


def _pool_faults(pool: Pool, prefix: str) -> Iterator[str]:
    engine, latency = pool.engine, pool.latency
    if engine.scheduler not in SCHEDULERS:
        yield _one_of(f"{prefix}engine.scheduler", engine.scheduler, SCHEDULERS)
    if latency.uncertainty:
        yield f"{prefix}latency.uncertainty: clients are served by one run; leave it out"
    if pool.serves is not None:
        yield f"{prefix}serves: serve has one model; leave it out"


def _one_of(key: str, found: str, allowed: tuple[str, ...]) -> str:
    return f'{key}: serve takes {", ".join(allowed)}, found "{found}"'
