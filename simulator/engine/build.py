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
from simulator.routing.base import Router
from simulator.scheduling.base import ReplicaContext


@dataclass(frozen=True)
class EngineSetup:
    """What the engine needs to know beside its policies.

    num_gpu_blocks : KV blocks as vLLM counts them, null block included.
    max_model_len : longest text, prompt and output, in tokens.
    tracks_identity : True: block tables even where identity cannot be observed; None: only where it can.
    coupled : see Cluster.
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
    """The decisions of a cluster; all replicas take the same.

    scheduler, parameters : a Scheduler subclass and its `Parameters`. latency : LatencyModel. router : Router.
    """

    scheduler: type
    parameters: Any
    latency: LatencyModel
    router: Router


@dataclass(frozen=True)
class Hooks:
    """Who is told what happens.

    monitor : called as `monitor(clock_ns, finished) -> bool` every few milliseconds; True stops the run.
    observer : debug face, see debug.StepLog.
    """

    recorder: Recorder = field(default_factory=Recorder)
    monitor: Callable[[int, int], bool] | None = None
    observer: Any = None


@dataclass(frozen=True)
class ReplicaSetup:
    """What replicas of one cluster share."""

    workload: Any
    recorder: Recorder
    delivery: Delivery
    acceptance: Acceptance | None
    is_async: bool
    observer: Any


def build_cluster(workload, policies: Policies, setup: EngineSetup, hooks: Hooks) -> Cluster:
    """Return a Cluster of `setup.replicas` equal replicas, ready to run `workload` once."""
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
        context = ReplicaContext(kv, workload, setup.max_model_len, setup.enable_prefix_caching, setup.fast_forward)
        replicas.append(Replica(index, policies.scheduler(parameters, context), policies.latency, shared))
    return Cluster(replicas, policies.router, workload, setup, hooks)


def _paged(content, parameters, setup):
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
    """Return whether some request could find blocks that another one, or itself before a preemption, left behind."""
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
