"""Experiments that cannot be served live yet, and why."""
import math
from collections.abc import Iterator

from simulator.config.experiment import Experiment, Pool
from simulator.config.parts import keys_in
from simulator.domain.serving import Serve
from simulator.domain.traits import OutputKnowledge
from simulator.errors import InputErrors, KeyFault
from simulator.live.fleet import LiveFleet
from simulator.live.supported import LIVE_KEYS, ONLY_RESULTS, why_not

BY_DECLARED_NAME = ("slo_class", "model", "adapter")    # labels with names from [workload], numbered in that order
COMING_LABELS = ("tenant", "session", "model")          # labels with names that come with the requests


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


def check_spans(serve: Serve) -> None:
    """Raise InputErrors: the server is like an engine with other spans.

    serve : as `opening.settled` returns it.
    """
    if serve.like != "vllm":
        raise InputErrors([KeyFault(f'serve.spans: expected false with like = "{serve.like}": the names are vLLM\'s')])


def check_kv_events(fleet: LiveFleet, experiment: Experiment) -> None:
    """Raise InputErrors: the prefix cache of some replica cannot be shown."""
    if faults := [KeyFault(f"{fault}, with [serve.kv_events]") for fault in _event_faults(fleet, experiment)]:
        raise InputErrors(faults)


def _event_faults(fleet: LiveFleet, experiment: Experiment) -> Iterator[str]:
    caches = [replica.rank.kv for replica in fleet.cluster.replicas]
    for pool in experiment.all_pools():
        if pool.engine.scheduler != "vllm":
            yield f'engine.scheduler: expected "vllm", found "{pool.engine.scheduler}"'
    if not all(kv.caches for kv in caches):
        yield "engine.enable_prefix_caching: expected true: there are no events without a prefix cache"
    if any(kv.is_hybrid for kv in caches):
        yield "model: expected one group of layers: events of several groups are not built"
    if any(kv.hashes_ahead for kv in caches):
        yield "engine.speculative.method: expected one without a drafter in the model's hashes, such as ngram"


def _faults(experiment: Experiment) -> Iterator[str]:
    for key in keys_in(experiment):
        if key not in ONLY_RESULTS | LIVE_KEYS:
            yield f"{key}: serve cannot do this yet; leave it out"
    scaling = experiment.autoscaling
    if scaling is not None:
        yield from _policy_faults("autoscaling.policy", "autoscaler", scaling.policy)
    if not math.isinf(experiment.horizon_s):
        yield f"horizon_s: expected inf, found {experiment.horizon_s:g}: --duration ends a session"
    for key in ("images", "videos"):
        if getattr(experiment.workload, key) is not None:
            yield f"workload.{key}: clients send the prompts, and serve reads text alone; leave it out"
    if experiment.workload.output_knowledge != OutputKnowledge():
        yield "workload.output_knowledge: no policy can know the length of an answer that nobody has asked for yet"
    yield from _front_faults(experiment)
    yield from _failure_faults(experiment)
    pools = experiment.all_pools()
    for pool in pools:
        yield from _pool_faults(pool, f"pools.{pool.name}." if experiment.pools else "")
    if len({pool.latency.host.shift_ns for pool in pools}) > 1:
        yield ("pools: expected one value of latency.host.output_token_us in all: it shifts the instant at which a "
               "client leaves its replica")


def _front_faults(experiment: Experiment) -> Iterator[str]:
    cluster = experiment.cluster
    yield from _policy_faults("cluster.admission.policy", "admission", cluster.admission.policy)
    queue = cluster.gateway_queue
    if queue is not None:
        yield from _policy_faults("cluster.gateway_queue.order", "gateway order", queue.order)
    if cluster.rescheduling is not None:
        yield from _headroom_faults("cluster.rescheduling", cluster.rescheduling)
    yield from _router_faults("cluster.routing", cluster.routing)
    if cluster.disaggregation is not None:
        for leg in ("prefill", "decode"):
            if getattr(cluster.disaggregation, leg) is not None:
                yield from _router_faults(f"cluster.disaggregation.{leg}", getattr(cluster.disaggregation, leg))


def _router_faults(key: str, routing) -> Iterator[str]:
    yield from _policy_faults(f"{key}.policy", "router", routing.policy)
    if (hashed := getattr(routing.parameters, "key", None)) in BY_DECLARED_NAME:
        yield (f'{key}.key: expected "session", "tenant" or "prompt", found "{hashed}": its names are numbered '
               "otherwise in a run of the record")
    yield from _headroom_faults(key, routing)
    for name, kind, found in (("scorers", "scorer", routing.scorers), ("filters", "filter", routing.filters)):
        for each in found:
            yield from _policy_faults(f"{key}.{name}", kind, each.name)
            if (label := getattr(each.parameters, "label", None)) in COMING_LABELS:
                yield (f'{key}.{name}: {each.name}: expected a label with names from the beginning, "slo_class" or '
                       f'"adapter", found "{label}"')


def _headroom_faults(key: str, table) -> Iterator[str]:
    if getattr(table.parameters, "headroom", ()):
        yield f"{key}.headroom: expected none: it reads the priorities of requests before they come"


def _pool_faults(pool: Pool, prefix: str) -> Iterator[str]:
    engine, latency = pool.engine, pool.latency
    yield from _policy_faults(f"{prefix}engine.scheduler", "scheduler", engine.scheduler)
    speculative = getattr(engine.parameters, "speculative", None)
    if speculative is not None and speculative.by_text:
        yield f"{prefix}engine.speculative.by_text: serve cannot do this yet; leave it out"
    if getattr(engine.parameters, "task", "generate") != "generate":
        yield f'{prefix}engine.task: expected "generate", found "{engine.parameters.task}": answers are texts'
    grammars = getattr(engine.parameters, "structured_outputs", None)
    if grammars is not None and (grammars.fraction > 0 or grammars.failing):
        yield (f"{prefix}engine.structured_outputs: expected neither fraction nor failing: each request says which "
               "form it demands, and its grammar has no name before")
    if latency.uncertainty:
        yield f"{prefix}latency.uncertainty: clients are served by one run; leave it out"
    if pool.serves is not None:
        yield f"{prefix}serves: serve has one model; leave it out"


def _failure_faults(experiment: Experiment) -> Iterator[str]:
    for i, failure in enumerate(experiment.failures):
        if failure.on_failure == "restart":
            yield (f'failures[{i}].on_failure: expected "retry", "lost" or "migrate", found "restart": tokens that a '
                   "client has cannot be taken back")
    for i, restart in enumerate(experiment.restarts):
        if restart.on_stop == "restart":
            yield (f'restarts[{i}].on_stop: expected "retry" or "lost", found "restart": tokens that a client has '
                   "cannot be taken back")


def _policy_faults(key: str, kind: str, name: str) -> Iterator[str]:
    if why := why_not(kind, name):
        yield f'{key}: serve cannot take "{name}": {why}'
