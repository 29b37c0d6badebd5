"""Build a cluster of equal replicas from its policies."""
from dataclasses import dataclass, field

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
from simulator.routing.round_robin import RoundRobin, RoundRobinParameters
from simulator.scheduling.context import ReplicaContext


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


@dataclass
class ReplicaSetup:
    """What replicas of one cluster share."""

    workload: object
    recorder: Recorder
    delivery: Delivery
    acceptance: Acceptance | None
    is_async: bool
    observer: object = None


def build_cluster(workload, scheduler_class, parameters, latency, setup, *, recorder=None, monitor=None, observer=None, router=None):
    """Return a Cluster of `setup.replicas` replicas, ready to run.

    scheduler_class, parameters : a Scheduler subclass and its `Parameters`. latency : LatencyModel, shared by the replicas.
    setup : EngineSetup. recorder, monitor, observer, router : see Recorder, Cluster, debug.StepLog, Router.
    """
    recorder = recorder or Recorder()
    host = setup.host
    delivery = Delivery(workload, recorder, setup.max_model_len, round(host.output_token_us * 1e3))
    shared = ReplicaSetup(
        workload=workload, recorder=recorder, delivery=delivery, acceptance=_acceptance(parameters, len(workload), setup.seed),
        is_async=getattr(parameters, "async_scheduling", False), observer=observer)
    content = Content(workload)
    with_identity = _needs_identity(workload, parameters, setup) if setup.tracks_identity is None else setup.tracks_identity
    replicas = []
    for index in range(setup.replicas):
        kv = (PagedKV(setup.num_gpu_blocks - 1, setup.block_size, content, setup.enable_prefix_caching,
                      append_unhashed=getattr(parameters, "vllm_version", "") == "0.10")
              if with_identity else CountingKV(setup.num_gpu_blocks - 1, setup.block_size))
        context = ReplicaContext(kv, workload, setup.max_model_len, setup.enable_prefix_caching, setup.fast_forward)
        replicas.append(Replica(index, scheduler_class(parameters, context), latency, shared))
    return Cluster(
        replicas, router or RoundRobin(RoundRobinParameters(), setup.replicas), recorder, workload, horizon_ns=setup.horizon_ns,
        queue_base_ns=host.queue_base_us * 1e3, queue_token_ns=host.queue_per_prompt_token_us * 1e3, monitor=monitor,
        coupled=setup.coupled)


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
    most = np.maximum(workload.outcomes["output_tokens"].astype(np.int64), 1)
    texts = np.minimum(workload.requests["prompt_tokens"] + np.minimum(most, workload.demands["max_tokens"]), setup.max_model_len)
    longest = -(-(int(texts.max()) + slack + 2) // setup.block_size)
    running = getattr(parameters, "max_num_active_seqs", None) or parameters.max_num_seqs
    return min(running, len(workload)) * longest > setup.num_gpu_blocks - 1
