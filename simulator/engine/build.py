"""Build a cluster of equal replicas from its policies."""
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simulator.core.random_streams import RandomStreams
from simulator.domain.host import HostParameters
from simulator.engine.acceptance import Acceptance
from simulator.engine.cluster import Cluster
from simulator.engine.delivery import Delivery
from simulator.engine.recorder import Recorder
from simulator.engine.replica import Replica
from simulator.kv.content import Content
from simulator.kv.counting import CountingKV
from simulator.kv.paged import PagedKV
from simulator.latency.base import LatencyModel
from simulator.routing.base import RoutingContext
from simulator.scheduling.base import ReplicaContext
from simulator.signals.view import View


@dataclass(frozen=True)
class EngineSetup:
    """What the engine needs to know beside its policies.

    num_gpu_blocks : KV blocks of each replica as vLLM counts them, null block included.
    block_size : tokens per block.
    max_model_len : longest text, prompt and output, in tokens.
    enable_prefix_caching : prompts may find blocks that others left behind.
    replicas : serving instances.
    host : time outside the accelerator.
    fast_forward : take runs of equal iterations at once; changes no result.
    horizon_ns : instant after which nothing happens; None: until nothing is left to do.
    seed : of the experiment; acceptance draws from a stream of it.
    tracks_identity : True, False: block tables or counts of blocks; None: tables only where identity can be observed.
    coupled : keep all replicas up to date with every event, as for a router that reads their state.
    """

    num_gpu_blocks: int
    block_size: int
    max_model_len: int
    enable_prefix_caching: bool = True
    replicas: int = 1
    host: HostParameters = field(default_factory=HostParameters)
    fast_forward: bool = True
    horizon_ns: int | None = None
    seed: int = 0
    tracks_identity: bool | None = None
    coupled: bool = False


@dataclass(frozen=True)
class Policies:
    """Who decides in a cluster; all replicas decide alike.

    scheduler, parameters : a Scheduler subclass and its `Parameters`.
    latency : how long an iteration takes; shared by the replicas.
    router, router_parameters : a Router subclass and its `Parameters`: which replica gets a request.
    """

    scheduler: type
    parameters: Any
    latency: LatencyModel
    router: type
    router_parameters: Any


@dataclass(frozen=True)
class Hooks:
    """Who is told what happens.

    recorder : takes iterations, tokens and gaps.
    monitor : called as `monitor(clock_ns, finished) -> bool` every few milliseconds; True stops the run.
    observer : sees every batch, see `debug.StepLog`; None: nobody does, and replicas may run ahead.
    """

    recorder: Recorder = field(default_factory=Recorder)
    monitor: Callable[[int, int], bool] | None = None
    observer: Any = None


@dataclass(frozen=True)
class ReplicaSetup:
    """What the replicas of one cluster share.

    workload : its `requests` are written to.
    recorder, observer : see `Hooks`.
    delivery : what reaches the clients.
    acceptance : None: no speculation.
    is_async : schedule an iteration while the one before it executes.
    """

    workload: Any
    recorder: Recorder
    delivery: Delivery
    acceptance: Acceptance | None
    is_async: bool
    observer: Any


def build_cluster(workload, policies: Policies, setup: EngineSetup, hooks: Hooks) -> Cluster:
    """Return a cluster of equal replicas, ready to run the workload once.

    workload : simulator.workload.base.Workload; its `requests` are written to.
    """
    parameters = policies.parameters
    shared = ReplicaSetup(
        workload=workload, recorder=hooks.recorder, observer=hooks.observer,
        delivery=Delivery(workload, hooks.recorder, setup.max_model_len, round(setup.host.output_token_us * 1e3)),
        acceptance=_acceptance(parameters, len(workload), setup.seed),
        is_async=getattr(parameters, "async_scheduling", False))
    content = Content(workload)
    with_identity = setup.tracks_identity
    if with_identity is None:
        with_identity = _needs_identity(workload, parameters, setup)
    replicas = []
    for index in range(setup.replicas):
        kv = _paged(content, parameters, setup) if with_identity else CountingKV(
            setup.num_gpu_blocks - 1, setup.block_size)
        context = ReplicaContext(
            kv=kv, requests=workload.requests, demands=workload.demands, max_model_len=setup.max_model_len,
            prompts_use_outputs=workload.prompts_use_outputs, enable_prefix_caching=setup.enable_prefix_caching,
            fast_forward=setup.fast_forward)
        replicas.append(Replica(index, policies.scheduler(parameters, context), policies.latency, shared))
    context = RoutingContext(View(setup.replicas), workload, content, setup.block_size, setup.seed)
    router = policies.router(policies.router_parameters, context)
    return Cluster(replicas, router, workload, setup, hooks)


def _paged(content, parameters, setup):
    # vLLM 0.10 frees blocks in another order
    return PagedKV(setup.num_gpu_blocks - 1, setup.block_size, content, setup.enable_prefix_caching,
                   append_unhashed=getattr(parameters, "vllm_version", "") == "0.10")


def _acceptance(parameters, num_requests, seed):
    speculative = getattr(parameters, "speculative", None)
    if speculative is None:
        return None
    weights = getattr(speculative.acceptance, "distribution", None)
    key = int(RandomStreams(seed).generator("acceptance").integers(0, 2**64, dtype=np.uint64))
    return Acceptance(None if weights is not None else speculative.acceptance, weights, num_requests, key)


def _needs_identity(workload, parameters, setup):
    """Return whether a request could find blocks that somebody left behind.

    Somebody is another request, or itself before a preemption. Nobody shares text where no prompt has segments; nobody
    is preempted where as many of the longest text as may run at once fit the pool together.
    """
    if not setup.enable_prefix_caching or len(workload) == 0:
        return False
    if len(workload.segments):
        return True
    speculative = getattr(parameters, "speculative", None)
    slack = 2 * (speculative.num_tokens + speculative.num_lookahead_tokens) if speculative else 0
    outputs = np.minimum(np.maximum(workload.outcomes["output_tokens"], 1), workload.demands["max_tokens"])
    texts = np.minimum(workload.requests["prompt_tokens"].astype(np.int64) + outputs, setup.max_model_len)
    longest = -(-(int(texts.max()) + slack + 2) // setup.block_size)
    running = getattr(parameters, "max_num_active_seqs", None) or parameters.max_num_seqs
    return min(running, len(workload)) * longest > setup.num_gpu_blocks - 1
