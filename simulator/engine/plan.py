"""What a cluster is to be: pools of replicas, a gateway per model, and what all share."""
from collections.abc import Callable
from typing import Any

import msgspec

from simulator.domain.data_parallel import LockStepRules
from simulator.domain.host import HostParameters
from simulator.domain.layer_groups import LayerGroups
from simulator.engine.output.recorder import Recorder
from simulator.latency.base import LatencyModel


class Pool(msgspec.Struct, frozen=True):
    """Equal replicas.

    scheduler, parameters : a Scheduler subclass and its `Parameters`.
    latency : how long an iteration takes; shared by the replicas.
    num_gpu_blocks : KV blocks of each replica, those included that its scheduler holds back (vLLM's null block).
    block_size : tokens per block.
    max_model_len : longest text, prompt and output, in tokens.
    enable_prefix_caching : prompts may find blocks that others left behind.
    replicas : that serve at time 0.
    max_replicas : places for replicas, those of time 0 included; None: no more than these.
    fast_forward : take runs of equal iterations at once, if the plan does; changes no result.
    host : time outside the accelerator.
    name : of the pool.
    model : label of the requests it serves; None: of all.
    role : "both", or "prefill" or "decode" alone, see `ClusterPlan.hand_over`.
    replicas_per_node : how many share a node, and fail with it. nodes_per_unit : likewise.
    cost_per_hour : of a replica, in any currency. accelerators : likewise.
    behind_server : as `ReplicaContext` has it; False: the scheduler is driven by itself.
    ranks : how many consecutive replicas are the ranks of one (data parallelism).
    ranks_per_choice : consecutive ranks of a replica among which `GatewayPlan.ranks` chooses, instead of the router.
    lock_step : domain.data_parallel.LockStepRules of these; None: each is an engine by itself.
    tier : called with the workload, returns the KVTier of a replica; None: there is nothing beyond its blocks.
    layer_groups : LayerGroups, which have block tables of their own; None: all layers share one.
    notes : what a reader has to know of the prices, beside what `latency` says.
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
    layer_groups: LayerGroups | None = None
    notes: tuple[str, ...] = ()

    @property
    def marches(self) -> bool:
        """Whether some of the replicas are in lock step."""
        return self.ranks > 1 and self.lock_step is not None

    @property
    def places(self) -> int:
        """Replicas that there may be at most."""
        return max(self.replicas, self.max_replicas or 0)


class RankFront(msgspec.Struct, frozen=True):
    """What chooses among the ranks of a replica, once the replica is chosen.

    both : Router subclass that asks one after the other, see routing.ranks.
    router, parameters : a Router subclass and its `Parameters`.
    snapshot_interval_ns : age up to which a snapshot of what ranks report is used again; 0: always live.
    """

    both: type
    router: type
    parameters: Any
    snapshot_interval_ns: int = 0


class GatewayPlan(msgspec.Struct, frozen=True):
    """What stands before the replicas; each served model has its own.

    router, router_parameters : a Router subclass and its `Parameters`.
    scorers : (class, weight, parameters) of each score that the router may add up.
    admission, admission_parameters : likewise an Admission; None: all requests are let in.
    queue, queue_parameters : likewise a GatewayQueue; None: there is none.
    classes : SLO classes by name.
    make : builds what a nested table of admission or queue chooses, see `AdmissionContext`.
    snapshot_interval_ns : age up to which a snapshot of what replicas report is used again; 0: always live.
    cache_delay_ns : age up to which what was seen of the prefix caches is used again; 0: always live.
    admission_latency_ns, routing_latency_ns : how long the decisions take.
    retry_ns : after which a request that no replica could take is routed again.
    ranks : RankFront; None: there are no ranks to choose among.
    patience_ns : how long after its admission it may be; 0: it is refused at once. Needs journeys.
    """

    router: type
    router_parameters: Any
    scorers: tuple = ()
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
    ranks: RankFront | None = None


class ClusterPlan(msgspec.Struct, frozen=True):
    """A cluster, as `build` makes it.

    pools : in the order in which replicas are numbered.
    front : what stands before the replicas.
    operations : called with (Fleet, list of Gateway, ClusterPlan), each returns an Operation: failures, scaling, ...
    tracer : called with (LiveView, index) of a gateway, returns a Tracer of its decisions; None: nobody asks.
    fast_forward : take runs of equal iterations at once; changes no result.
    horizon_ns : instant after which nothing happens; None: until nothing is left to do.
    seed : of the experiment; whoever draws does so from a stream of it.
    tracks_identity : True, False: block tables or counts of blocks; None: tables only where identity can be observed.
    coupled : keep all replicas up to date with every event, as for a router that reads their state.
    give_up_ns : end a run in which requests wait at gateways and nothing but ticks has happened for so long.
    give_up_failing_ns : the same where replicas fail and are repaired meanwhile.
    threads : that may serve replicas side by side where these do not see each other; changes no result.
    serves : replicas [first, last) of this part of the cluster: all requests are placed, and those of other replicas
        not served; None: all. Takes a cluster that `can_be_cut`.
    keeps_journeys : note each request's way to its replica.
    keeps_legs : note each stay of a request at a replica; needed by what takes requests off a replica.
    adds_up : keep account of how long each request executed, where the recorder wants iterations: these are taken one
        by one.
    moves_requests : an operation moves requests between replicas.
    hand_over : simulator.engine.hand_over.plan.HandOverPlan, how prompts that prefill replicas have computed come to
        decode replicas; None: each replica does whole requests.
    encode : simulator.engine.encoders.plan.EncodePlan, replicas besides `pools` that encode items before requests are
        routed; None: items are encoded where prompts are computed, if anywhere.
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
    hand_over: Any = None
    encode: Any = None

    @property
    def models(self) -> list[str | None]:
        """Models that are served, in order; each has a gateway."""
        return list(dict.fromkeys(pool.model for pool in self.pools))

    @property
    def num_models(self) -> int:
        """How many these are."""
        return len(self.models)

    @property
    def split_models(self) -> set[str | None]:
        """Models whose requests may be split into a prefill and a decode leg."""
        return {pool.model for pool in self.pools if self.hand_over and pool.role != "both"}


class Hooks(msgspec.Struct, frozen=True):
    """Who is told what happens.

    recorder : takes iterations, tokens and gaps.
    monitor : called as `monitor(clock_ns, finished) -> bool` every few milliseconds; True stops the run.
    observer : sees every batch, see `debug.StepLog`; None: nobody does, and replicas may run ahead.
    """

    recorder: Recorder = msgspec.field(default_factory=Recorder)
    monitor: Callable[[int, int], bool] | None = None
    observer: Any = None
