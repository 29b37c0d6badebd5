"""Plan of a cluster: pools of replicas, a gateway per model, and settings of the whole."""
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from simulator.domain.data_parallel import LockStepRules
from simulator.domain.host import HostParameters
from simulator.domain.items import Items
from simulator.domain.layer_groups import LayerGroups
from simulator.engine.output.recorder import Recorder
from simulator.latency.base import LatencyModel


class Pool(msgspec.Struct, frozen=True):
    """Equal replicas.

    scheduler, parameters : a Scheduler subclass and its `Parameters`.
    latency : LatencyModel of an iteration; shared by the replicas.
    num_gpu_blocks : KV blocks of each replica, including those that its scheduler holds back (vLLM's null block).
    block_size : tokens per block.
    max_model_len : longest text, prompt and output, in tokens.
    enable_prefix_caching : prompts may find blocks left behind by other requests.
    replicas : number of replicas that serve at time 0.
    max_replicas : places for replicas, including those of time 0; None: no more than these.
    fast_forward : take runs of equal iterations at once, if the plan does; changes no result.
    host : time outside the accelerator.
    name : of the pool.
    model : label of the requests it serves; None: all requests.
    role : "both", or "prefill" or "decode" alone, see `ClusterPlan.split`.
    replicas_per_node : number that share a node, and fail with it. nodes_per_unit : number that share a unit.
    cost_per_hour : of a replica, in any currency. accelerators : of a replica.
    behind_server : see `ReplicaContext`; False: the scheduler is driven directly.
    ranks : number of consecutive replicas that are the ranks of one (data parallelism).
    ranks_per_choice : consecutive ranks of a replica among which `GatewayPlan.ranks` chooses, instead of the router.
    lock_step : domain.data_parallel.LockStepRules of its ranks; None: each rank is an engine by itself.
    tier : called with the workload, returns the KVTier of a replica; None: no KV tier.
    retention : called with the workload, returns the domain.kv_retention.Retention of blocks held for programs; None:
        none are held.
    layer_groups : LayerGroups, with block tables of their own; None: all layers share one.
    item_ns : called with Items, returns the time of encoding each in ns, float64 (items,); None: no prices of their
        own.
    context_range : prompt tokens for which the pool is meant, [least, most]; empty: any number.
    queue_limits : of the API server before `ranks_per_choice` ranks, as of signals.queue_limits; (): it has none.
    draft_modules : see `KVPlan`.
    notes : remarks on prices for a reader of the results, beside those of `latency`.
    """

    scheduler: type
    parameters: Any
    latency: LatencyModel
    num_gpu_blocks: int
    block_size: int
    max_model_len: int
    enable_prefix_caching: bool = True
    fast_forward: bool = True
    replicas: int = 1
    max_replicas: int | None = None
    host: HostParameters = HostParameters()
    name: str = "default"
    model: str | None = None
    role: str = "both"
    behind_server: bool = False
    replicas_per_node: int = 1
    nodes_per_unit: int = 1
    cost_per_hour: float = 0.0
    accelerators: int = 1
    ranks: int = 1
    ranks_per_choice: int = 1
    lock_step: LockStepRules | None = LockStepRules()
    tier: Callable | None = None
    retention: Callable | None = None
    layer_groups: LayerGroups | None = None
    item_ns: Callable | None = None
    context_range: tuple[int, ...] = ()
    queue_limits: tuple[int | None, ...] = ()
    draft_modules: int = 1
    notes: tuple[str, ...] = ()

    def priced(self, items: Items | None) -> Items | None:
        """Return items with the times of encoding them here."""
        return items if items is None or self.item_ns is None else replace(items, ns=self.item_ns(items))

    @property
    def is_in_lock_step(self) -> bool:
        """Whether some of the replicas are in lock step."""
        return self.ranks > 1 and self.lock_step is not None

    @property
    def places(self) -> int:
        """Largest number of replicas."""
        return max(self.replicas, self.max_replicas or 0)


class GatewayPlan(msgspec.Struct, frozen=True):
    """Settings of a gateway; each served model has its own.

    router, router_parameters : a Router subclass and its `Parameters`.
    scorers : (class, weight, parameters) of each score that the router may add up.
    filters : (class, parameters) of each filter that the router may put before its scores.
    admission, admission_parameters : an Admission subclass and its `Parameters`; None: all requests are admitted.
    queue, queue_parameters : a GatewayQueue subclass and its `Parameters`; None: no queue.
    classes : SLO classes by name.
    make : builds the objects chosen by nested tables of admission or queue, see `AdmissionContext`.
    snapshot_interval_ns : age up to which a snapshot of the replicas' reports is used again; 0: always live.
    cache_delay_ns : age up to which a reading of the prefix caches is used again; 0: always live.
    admission_latency_ns, routing_latency_ns : durations of the decisions.
    retry_ns : delay before a request that no replica could take is routed again.
    ranks : the second router, see engine.ranks; None: there are no ranks to choose among.
    patience_ns : time after its admission for retries; 0: it is refused at once. Needs journeys.
    quotas : routing.parts.quotas.Quota of each pool, for the router; empty: none is given.
    """

    router: type
    router_parameters: Any
    scorers: tuple = ()
    filters: tuple = ()
    admission: type | None = None
    admission_parameters: Any = None
    queue: type | None = None
    queue_parameters: Any = None
    classes: Any = None
    make: Any = None
    snapshot_interval_ns: int = 0
    cache_delay_ns: int = 0
    admission_latency_ns: int = 0
    routing_latency_ns: int = 0
    retry_ns: int = 1_000_000_000
    patience_ns: int = 0
    ranks: Any = None
    quotas: tuple = ()


class ClusterPlan(msgspec.Struct, frozen=True):
    """A cluster, as `build` constructs it.

    pools : in the order in which replicas are numbered.
    front : settings of its gateways.
    operations : called with (Fleet, list of Gateway, ClusterPlan), each returns an Operation: failures, scaling, ...
    tracer : called with (LiveView, index) of a gateway, returns a Tracer of its decisions; None: no tracer.
    fast_forward : take runs of equal iterations at once; changes no result.
    horizon_ns : instant after which nothing happens; None: until nothing is left to do.
    seed : of the experiment; all random numbers are drawn from streams of it.
    tracks_identity : True, False: block tables or counts of blocks; None: tables only where identity can be observed.
    coupled : keep all replicas up to date with every event, as for a router that reads their state.
    give_up_ns : a run ends if requests wait at gateways and nothing but ticks has happened for this time.
    give_up_failing_ns : the limit if replicas fail and are repaired meanwhile.
    threads : number that may serve replicas in parallel if these do not affect each other; changes no result.
    serves : replicas [first, last) of this part of the cluster: all requests are placed, and those of other replicas
        not served; None: all. Requires `Cluster.why_whole` to return None.
    keeps_journeys : record each request's path to its replica.
    keeps_legs : record each stay of a request at a replica; needed by operations that take requests off a replica.
    adds_up : record how long each request executed, if the recorder records iterations: they are simulated one
        by one.
    moves_requests : an operation moves requests between replicas.
    resends : called with (Fleet, list of Gateway, ClusterPlan, engine.build.gateway_of), returns the Operation of
        clients that send failed requests again, which takes back the end of a request; None: an end is final.
    far_clients : called with (Fleet, list of Gateway, index of the gateway for each code of a model label from -1 on,
        the operation of `resends` or None), returns the Operation of clients that learn of ends late; it has `attach`,
        which gets the source of requests; None: clients learn of an end at once.
    split : how requests are split into a prefill and a decode leg; None: each replica serves whole requests.
    parts : features of the experiment, assembly.parts.base.Part; the engine passes them on to the Run.
    models_with_embeddings : models with items that are encoded before requests are routed, by an operation; items of
        other models are encoded where prompts are computed, if anywhere.
    """

    pools: tuple[Pool, ...]
    front: GatewayPlan
    operations: tuple[Callable, ...] = ()
    tracer: Callable | None = None
    fast_forward: bool = True
    horizon_ns: int | None = None
    seed: int = 0
    tracks_identity: bool | None = None
    coupled: bool = False
    give_up_ns: int = 600 * 10**9
    give_up_failing_ns: int = 60_000 * 10**9
    threads: int = 1
    serves: tuple[int, int] | None = None
    keeps_journeys: bool = False
    keeps_legs: bool = False
    adds_up: bool = False
    moves_requests: bool = False
    resends: Callable | None = None
    far_clients: Callable | None = None
    split: Any = None
    models_with_embeddings: frozenset = frozenset()
    parts: tuple = ()

    @property
    def models(self) -> list[str | None]:
        """Models that are served, in order; each has a gateway."""
        return list(dict.fromkeys(pool.model for pool in self.pools))

    @property
    def num_models(self) -> int:
        """Number of models that are served."""
        return len(self.models)

    @property
    def split_models(self) -> set[str | None]:
        """Models with requests that may be split into a prefill and a decode leg."""
        return {pool.model for pool in self.pools if self.split and pool.role != "both"}

    @property
    def prompts_return(self) -> bool:
        """Whether a replica may receive a prompt again, for another leg or attempt."""
        return self.resends is not None or (self.split is not None and self.split.prompts_return(self))

    def front_of(self, model: str | None) -> GatewayPlan:
        """Return the settings of the first gateway of a model."""
        return self.split.settings.prefill_front if model in self.split_models else self.front


class Hooks(msgspec.Struct, frozen=True):
    """Receivers of the events of a run.

    recorder : records iterations, tokens and gaps.
    monitor : called as `monitor(clock_ns, finished) -> bool` every few milliseconds; True stops the run.
    observer : called with every batch, see `debug.StepLog`; None: no observer, and replicas may run ahead.
    source : called with the workload, returns the Source of its requests; None: that of the workload.
    """

    recorder: Recorder = msgspec.field(default_factory=Recorder)
    monitor: Callable[[int, int], bool] | None = None
    observer: Any = None
    source: Callable | None = None
