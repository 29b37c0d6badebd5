"""The experiment file, one Struct per table: its keys, their types, limits, defaults and meaning.

In a Struct with a field `parameters`, one key chooses a class by name; keys of the table that are not fields of the
Struct belong to that class and are in `parameters` (see simulator.config.fields).
"""
import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from simulator.config.parts import completed, parts_in, with_parts
from simulator.domain.dtypes import KvCacheDtype, WeightFormat
from simulator.domain.failures import Health
from simulator.domain.gateway import GatewayQueueParameters
from simulator.domain.host import HostParameters
from simulator.domain.load import Load, Measure, Warmup
from simulator.domain.router_queue import RouterQueueParameters
from simulator.domain.slo_classes import SloClass, by_name
from simulator.domain.traits import Images, OutputKnowledge, Videos

MAX_EVENTS = 2_000_000  # of trace.json: about 220 MB
LAST_SECOND = 9e9       # the clock, int64 nanoseconds, ends soon after

Count = Annotated[int, Meta(ge=1, le=2**20)]
BoundMs = Annotated[float, Meta(gt=0)]
Patience = Annotated[float, Meta(gt=0, le=9e9)]
Weight = Annotated[float, Meta(ge=0, le=1e9, extra={"unit": "weight"})]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the experiment file."""


class Model(Section, kw_only=True):
    """The language model, [model]."""

    name: Annotated[str | None, Meta(extra={"facts": "model"}, description=(
        "a model of models/<name>.toml, or a repository on the Hugging Face hub"))] = None
    config: Annotated[str | None, Meta(extra={"path": True}, description=(
        "path of a Hugging Face config.json, instead of name"))] = None
    dtype: Annotated[WeightFormat | None, Meta(description=(
        "format of the weights; default: the checkpoint's. Scales counted: fp8_block: float32 per 128 x 128 weights; "
        "nvfp4: 8 bits per 16 weights; mxfp4: 8 bits per 32 weights, experts only; awq, gptq: 20 bits per 128 weights; "
        "int4_wo: 16 bits per 128 weights; other formats: none"))] = None
    kv_cache_dtype: Annotated[KvCacheDtype, Meta(description=(
        "format of the KV cache; auto: as the checkpoint declares, else the model's dtype; on compute capability 10.x "
        "fp8_e4m3 for GLM-5 by vLLM and for sparse attention by SGLang"))] = "auto"


class Hardware(Section, kw_only=True):
    """The accelerator, [hardware]."""

    name: Annotated[str, Meta(extra={"facts": "hardware"}, description="an accelerator of hardware/<name>.toml")]


class Topology(with_parts(Section, "topology"), kw_only=True):
    """Replicas, and the parallelism over their accelerators, [topology]."""

    replicas: Annotated[Count, Meta(description="number of serving instances")] = 1
    tensor_parallel: Annotated[Count, Meta(description="tensor-parallel size within a replica")] = 1
    pipeline_parallel: Annotated[Count, Meta(description="number of pipeline stages within a replica")] = 1
    expert_parallel: Annotated[Count, Meta(description=(
        "expert-parallel size within a replica; with data_parallel or prefill_context_parallel above 1: either 1, or "
        "the product of that size and tensor_parallel"))] = 1
    data_parallel: Annotated[Count, Meta(description=(
        "number of data-parallel attention ranks of a replica, each with its own queue and KV blocks; see "
        "[engine.data_parallel]"))] = 1
    decode_context_parallel: Annotated[Count, Meta(description=(
        "number of accelerators, out of tensor_parallel, that share the KV of a sequence; a KV block then holds "
        "decode_context_parallel x block_size tokens"))] = 1
    prefill_context_parallel: Annotated[Count, Meta(description=(
        "number of ranks, of tensor_parallel accelerators each, that divide the prompts of a replica; each rank keeps "
        "all KV and computes all decodes"))] = 1
    cp_kv_cache_interleave_size: Annotated[Count, Meta(extra={"unit": "tokens"}, description=(
        "tokens stored on one context-parallel rank before moving to the next"))] = 1
    dcp_comm_backend: Annotated[Literal["ag_rs", "a2a"], Meta(description=(
        "collective that combines partial attention outputs: all-gather and reduce-scatter, or all-to-all"))] = "ag_rs"
    node: Annotated[str | None, Meta(extra={"facts": "node"}, description=(
        "a node type of hardware/nodes/<name>.toml: GPUs per node, NVLink domain, NICs; default: the accelerator's "
        "usual node type if a replica is larger than one link domain"))] = None

    @property
    def accelerators(self) -> int:
        """Number of accelerators of a replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel * self.prefill_context_parallel


class Engine(with_parts(Section, "engine"), kw_only=True):
    """The serving engine, [engine], with the keys of its scheduler."""

    scheduler: Annotated[str, Meta(description="scheduler that forms the batches")] = "vllm"
    max_model_len: Annotated[Annotated[int, Meta(ge=2, le=2**31 - 1)] | None, Meta(description=(
        "maximum tokens of a request, prompt and output; default: the model's"))] = None
    allow_long_max_model_len: Annotated[bool, Meta(description=(
        "allow a max_model_len above the model's maximum; vLLM's VLLM_ALLOW_LONG_MAX_MODEL_LEN"))] = False
    block_size: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(description=(
        "tokens per KV block; default: the engine's. vllm: 16, or the smallest that the attention backend takes (64 "
        "for latent attention with fp8 KV, or sparse, on Hopper); sglang: 1, 64 on compute capability 10.x and for "
        "sparse attention; tensorrt_llm: 32; lightllm: 1; else 16"
        ))] = None
    num_gpu_blocks: Annotated[Annotated[int, Meta(ge=2, le=2**31 - 1)] | None, Meta(description=(
        "KV blocks of a replica, including blocks that the scheduler reserves (vllm: the null block); default: "
        "derived from the memory left by the weights, as `fit --explain` shows"))] = None
    gpu_memory_utilization: Annotated[Annotated[float, Meta(gt=0, le=1)] | None, Meta(description=(
        "share of GPU memory that vLLM may use; default: 0.92, in vllm_version 0.10 and for schedulers of no engine "
        "0.9; other engines have their own keys"))] = None
    enable_prefix_caching: Annotated[bool, Meta(description="requests share the KV blocks of equal prefixes")] = True
    fast_forward: Annotated[bool, Meta(description=(
        "simulate runs of equal iterations in one step; the results do not change"))] = True
    parameters: Annotated[Any, Meta(extra={"kind": "scheduler"})]


class Collective(Section, kw_only=True):
    """Duration of collectives, [latency.collective], with the model's keys."""

    backend: Annotated[str, Meta(description="model that predicts the duration of a collective")]
    parameters: Annotated[Any, Meta(extra={"kind": "collective"})]


class Latency(Section, kw_only=True):
    """Duration of an iteration, [latency], with the keys of its backend."""

    backend: Annotated[str, Meta(description="model that predicts the duration of an iteration")] = "roofline"
    resolution_us: Annotated[float, Meta(ge=0, le=1e6, description=(
        "durations, host overheads included, are truncated to multiples of this; 0: rounded to a nanosecond"))] = 0.0
    uncertainty: Annotated[bool, Meta(description=(
        "repeat the run with operator times perturbed by the leave-one-out errors of their tables; the summary gets "
        "intervals"))] = False
    uncertainty_replications: Annotated[Annotated[int, Meta(ge=4, le=4096)] | None, Meta(description=(
        "with uncertainty: number of perturbed runs; default: 16"))] = None
    uncertainty_share: Annotated[Annotated[float, Meta(gt=0, lt=1)] | None, Meta(description=(
        "with uncertainty: share of the perturbed runs within an interval; default: 0.8, the 10th to the 90th "
        "percentile"))] = None
    residual: Annotated[str | None, Meta(extra={"path": True}, description=(
        "steps.json of `calibrate`: measured iterations, on top of the backend and all other parts of an iteration; "
        "absent: none"))] = None
    time_factor: Annotated[Annotated[float, Meta(ge=0.01, le=100)] | None, Meta(description=(
        "factor on the time of each iteration, the host's part of it included: a server slower, or faster, than "
        "predicted; `model_confidence` of a study sets it; absent: 1"))] = None
    host: Annotated[HostParameters, Meta(description="host overheads, time outside the GPU")]
    collective: Annotated[Collective | None, Meta(description=(
        "model of collectives between accelerators; absent: the backend's own"))] = None
    parameters: Annotated[Any, Meta(extra={"kind": "latency"})]


class Pool(with_parts(Section, "pools[]"), kw_only=True):
    """Equal replicas, [[pools]]; keys of its tables override the experiment's."""

    name: Annotated[str, Meta(min_length=1, description="name of the pool in results and messages")]
    replicas: Annotated[Annotated[int, Meta(ge=0, le=2**20)] | None, Meta(description=(
        "number of serving instances at time 0; default: topology.replicas"))] = None
    max_replicas: Annotated[Count | None, Meta(description="limit for autoscaling; default: replicas")] = None
    serves: Annotated[str | None, Meta(description=(
        "serve only requests with this value in column model; default: requests that no other pool serves"))] = None
    role: Annotated[Literal["both", "prefill", "decode", "encode"] | None, Meta(description=(
        "part of requests that the pool computes. prefill: prompts, to be continued by decode pools; decode: output "
        "after such prompts, and unsplit requests; both: any part; encode: images, before their prompts. prefill and "
        "decode need [kv_transfer], encode needs [embeddings]; default: both"))] = None
    infer_type: Annotated[Literal["neutral", "prefill", "decode"] | None, Meta(description=(
        "Llumnix's name of role; neutral means both"))] = None
    nodes_per_unit: Annotated[Count, Meta(description="number of nodes that fail together, for instance of a rack")] = 1
    context_range: Annotated[tuple[Annotated[int, Meta(ge=0, le=2**31 - 1)], ...], Meta(
        extra={"unit": "tokens"}, description=(
            "[least, most] prompt tokens for which the pool is meant, for the scorer context-length; absent: any "
            "number"))] = ()
    model: Annotated[Model | None, Meta(description="overrides keys of [model]")] = None
    hardware: Annotated[Hardware | None, Meta(description="overrides keys of [hardware]")] = None
    topology: Annotated[Topology, Meta(description="overrides keys of [topology]")]
    engine: Annotated[Engine, Meta(description="overrides keys of [engine]")]
    latency: Annotated[Latency, Meta(description="overrides keys of [latency]")]

    def __post_init__(self):
        if self.context_range and not (len(self.context_range) == 2 and self.context_range[0] <= self.context_range[1]):
            raise ValueError(f"context_range = {list(self.context_range)}: give [least, most], the first at most the "
                             "second")
        meant = {None: self.role, "neutral": "both"}.get(self.infer_type, self.infer_type)
        if self.role not in (None, meant):
            raise ValueError(f'role = "{self.role}" and infer_type = "{self.infer_type}" say different things of pool '
                             f'"{self.name}": give one of them')
        msgspec.structs.force_setattr(self, "role", meant or "both")
        msgspec.structs.force_setattr(self, "infer_type", None)

    @property
    def at_start(self) -> int:
        """Number of replicas at time 0."""
        return self.topology.replicas if self.replicas is None else self.replicas

    @property
    def places(self) -> int:
        """Number of rows in `Run.replicas`."""
        return max(self.at_start, self.max_replicas or 0) * self.topology.data_parallel


class Admission(Section, kw_only=True):
    """Admission of requests, [cluster.admission], with the keys of its policy."""

    policy: Annotated[str, Meta(description="policy that admits or rejects a request")] = "always"
    latency_s: Annotated[float, Meta(ge=0, le=1e6, description="the decision takes that long")] = 0.0
    parameters: Annotated[Any, Meta(extra={"kind": "admission"})]


class Scorer(Section, kw_only=True):
    """One of the scores that a router adds up, with the keys of the scorer."""

    name: Annotated[str, Meta(description="scorer of the replicas")]
    weight: Annotated[float, Meta(gt=0, description="relative weight of this score in the sum")]
    parameters: Annotated[Any, Meta(extra={"kind": "scorer"})]


class Filter(Section, kw_only=True):
    """One of the filters in front of a router's scores, with the keys of the filter."""

    name: Annotated[str, Meta(description="filter of the replicas")]
    parameters: Annotated[Any, Meta(extra={"kind": "filter"})]


class LegRouting(Section, kw_only=True):
    """Choice of the replica for one part of a request, with the router's keys."""

    like: Annotated[Literal["llm-d-default"] | None, Meta(description=(
        "keys that are not given here are the defaults of a gateway: llm-d-default: policy weighted with the profile "
        "llm-d-router, reports at most 50 ms old; absent: none"))] = None
    policy: Annotated[str, Meta(description="router that chooses the replica of a request")] = "round_robin"
    snapshot_refresh_interval_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "maximum age of the router's view of the replicas; 0: always live"))] = 0.0
    cache_signal_delay_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "maximum age of the router's view of prefix caches; 0: always live"))] = 0.0
    latency_s: Annotated[float, Meta(ge=0, le=1e6, description="the decision takes that long")] = 0.0
    scorers: Annotated[tuple[Scorer, ...], Meta(extra={"needs": "takes_scorers"}, description=(
        "scores that the policy weighted, or a policy of your own, adds up; default: the scorers of its profile"))] = ()
    filters: Annotated[tuple[Filter, ...], Meta(extra={"needs": "takes_filters"}, description=(
        "filters that the policy weighted, or a policy of your own, applies in this order; it adds up scores for the "
        "replicas that all of them keep"))] = ()
    parameters: Annotated[Any, Meta(extra={"kind": "router"})]


class Routing(LegRouting, kw_only=True):
    """Choice of the replica of a request, [cluster.routing], with the router's keys."""

    retry_timeout_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "time for which a request that no replica accepts is retried; 0: it is rejected immediately"))] = 0.0
    retry_interval_s: Annotated[float, Meta(gt=1e-6, le=1e6, description="time between two retries")] = 1.0
    queue: Annotated[RouterQueueParameters | None, Meta(description=(
        'queue in front of the router "dynamo", in which requests wait while replicas are busy; absent: none'))] = None


class Cluster(with_parts(Section, "cluster"), kw_only=True):
    """Admission, gateway and routing in front of the replicas, [cluster]."""

    give_up_after_s: Annotated[Patience, Meta(description=(
        "simulated time after which a run is ended, with a message, if requests wait at a gateway and nothing else "
        "happens"))] = 600.0
    give_up_failing_after_s: Annotated[Patience, Meta(description=(
        "as give_up_after_s, if replicas fail and are repaired meanwhile but none accepts a request"))] = 60_000.0
    admission: Annotated[Admission, Meta(description="admission of requests, with the keys of its policy")]
    gateway_queue: Annotated[GatewayQueueParameters | None, Meta(description=(
        "queue in which requests wait until replicas have capacity; absent: requests are routed at once"))] = None
    routing: Annotated[Routing, Meta(description="choice of the replica of a request, with the keys of its router")]
    health: Annotated[Health, Meta(description="health checks of replicas by the gateway")]


class Workload(with_parts(Section, "workload"), kw_only=True):
    """The requests, [workload], with the keys of their type."""

    type: Annotated[str, Meta(description="source of the requests")]
    load: Annotated[Load, Meta(description="arrival of the requests")]
    measure: Annotated[Measure, Meta(description="requests and time that count in the summary")]
    warmup: Annotated[Warmup, Meta(description="requests sent before all others")]
    cancel_at_deadline: Annotated[bool, Meta(description=(
        "cancel a request that is incomplete when its deadline_s has passed; false: it continues, and counts as a miss"
    ))] = True
    output_knowledge: Annotated[OutputKnowledge, Meta(description="knowledge of output lengths that policies have")]
    images: Annotated[Images | None, Meta(description="images in prompts; absent: as in the trace")] = None
    videos: Annotated[Videos | None, Meta(description="videos in prompts; absent: none")] = None
    parameters: Annotated[Any, Meta(extra={"kind": "workload"})]

    def __post_init__(self):
        for table in ("load", "measure", "warmup"):         # a preset may fill in these tables
            if fill := getattr(self.parameters, f"fill_{table}", None):
                msgspec.structs.force_setattr(self, table, fill(getattr(self, table)))

    @property
    def filled_by(self) -> str | None:
        """Name of the preset that fills in load, measure or warmup, or None."""
        return getattr(self.parameters, "filled_by", None)


class Slo(Section, kw_only=True):
    """Bounds that a request must meet to count in goodput, [slo]."""

    ttft_ms: Annotated[BoundMs | None, Meta(description="time to first token")] = None
    tpot_ms: Annotated[BoundMs | None, Meta(description="time per output token after the first")] = None
    e2el_ms: Annotated[BoundMs | None, Meta(description="end-to-end latency")] = None
    classes: Annotated[tuple[SloClass, ...], Meta(description=(
        "priorities of classes of requests, and bounds that override the bounds of [slo]"))] = ()

    def __post_init__(self):
        by_name(self.classes)       # refuses duplicate names


class Output(with_parts(Section, "output"), kw_only=True):
    """Result files, [output]."""

    directory: Annotated[str | None, Meta(extra={"path": True}, description=(
        "folder of the results; default: results/<name>"))] = None
    requests: Annotated[bool, Meta(description="write the per-request table")] = True
    iterations: Annotated[bool, Meta(description="write the per-iteration table")] = True
    chrome_trace: Annotated[bool, Meta(description="write trace.json for chrome://tracing and Perfetto")] = False
    chrome_trace_window_s: Annotated[tuple[Annotated[float, Meta(ge=0, le=LAST_SECOND)], ...], Meta(
        description="[from, to] of simulated time to write to trace.json; absent: all")] = ()
    chrome_trace_max_events: Annotated[int, Meta(ge=0, le=2**40, description=(
        "limit of events in trace.json, half of it for iterations (10^6: about 110 MB); 0: no limit"))] = MAX_EVENTS
    token_times: Annotated[bool, Meta(description=(
        "write the time of every token of each request; of one that is sent again or starts over, those of all attempts"
        ))] = False
    vidur_csv: Annotated[bool, Meta(description=(
        "write request_metrics.csv and batch_metrics.csv with Vidur's columns; `export` writes Vidur's other files"
    ))] = False

    def __post_init__(self):
        window_s = self.chrome_trace_window_s
        if window_s and not (len(window_s) == 2 and window_s[0] < window_s[1]):
            raise ValueError(f"chrome_trace_window_s = {list(window_s)}: give [from, to], the first before the second")
        if not self.chrome_trace and (window_s or self.chrome_trace_max_events != MAX_EVENTS):
            raise ValueError("chrome_trace_window_s and chrome_trace_max_events take chrome_trace = true")
        if self.vidur_csv and not (self.requests and self.iterations):
            raise ValueError("vidur_csv is made of the tables: it takes requests = true and iterations = true")


class Fitness(Section, kw_only=True):
    """Weights of a single number for comparing runs, [fitness].

    fitness = sum of weight x value, higher is better; the value of a latency is 1 / (1 + ms), of throughput
    (requests/s) r / (r + 100), of tokens_per_sec (output tokens/s) t / (t + 10000).
    Source: BLIS (inference-sim, sim/cluster/metrics.go).
    """

    p99_ttft: Annotated[Weight, Meta(description="99th percentile of the time to first token")] = 0.0
    p50_ttft: Annotated[Weight, Meta(description="median time to first token")] = 0.0
    mean_ttft: Annotated[Weight, Meta(description="mean time to first token")] = 0.0
    p99_e2e: Annotated[Weight, Meta(description="99th percentile of the end-to-end latency")] = 0.0
    p50_e2e: Annotated[Weight, Meta(description="median end-to-end latency")] = 0.0
    mean_e2e: Annotated[Weight, Meta(description="mean end-to-end latency")] = 0.0
    throughput: Annotated[Weight, Meta(description="completed requests per second")] = 0.0
    tokens_per_sec: Annotated[Weight, Meta(description="output tokens per second")] = 0.0


class Experiment(with_parts(Section, ""), kw_only=True, dict=True):
    """One complete experiment: equal experiments give equal results."""

    name: Annotated[str, Meta(pattern=r"^\w[\w.+ -]{0,199}$", description=(
        "name of the results: letters, digits and . _ + - ; default: from the file name, with _ for other characters"))]
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="seed of all random streams")] = 0
    horizon_s: Annotated[float, Meta(gt=0, extra={"inf": True}, description=(
        "simulated time at which the run stops; unfinished requests are counted; above 9e9: inf"))] = math.inf
    model: Annotated[Model | None, Meta(description="the language model")] = None
    hardware: Annotated[Hardware | None, Meta(description="the accelerator")] = None
    topology: Annotated[Topology, Meta(description="replicas, and the parallelism over their accelerators")]
    engine: Annotated[Engine, Meta(description="the serving engine, with the keys of its scheduler")]
    latency: Annotated[Latency, Meta(description="duration of an iteration, with the keys of its backend")]
    pools: Annotated[tuple[Pool, ...], Meta(description=(
        "groups of replicas with different settings; absent: all replicas are equal"))] = ()
    cluster: Annotated[Cluster, Meta(description="admission, gateway and routing in front of the replicas")]
    workload: Annotated[Workload, Meta(description="the requests, with the keys of their type")]
    slo: Annotated[Slo, Meta(description="bounds for goodput")]
    fitness: Annotated[Fitness | None, Meta(description="weights of a single number for comparing runs")] = None
    output: Annotated[Output, Meta(description="result files")]

    def __post_init__(self):
        if self.horizon_s > LAST_SECOND:
            msgspec.structs.force_setattr(self, "horizon_s", math.inf)

    def __reduce__(self):
        return _with_origins, ({name: getattr(self, name) for name in self.__struct_fields__}, self.origins)

    @property
    def origins(self):
        """`config.origins.Origins` of its values; None: it was not read from a file."""
        return self.__dict__.get("origins")

    def parts(self) -> tuple:
        """Return the parts that the experiment uses, `assembly.parts.base.Part`."""
        if "part_classes" not in self.__dict__:         # every key of a part is looked up in every pool
            self.__dict__["part_classes"] = parts_in(self)
        return tuple(part(self) for part in self.__dict__["part_classes"])

    def all_pools(self) -> tuple[Pool, ...]:
        """Return the pools that compute tokens; without [[pools]], a single default pool."""
        pools = tuple(pool for pool in self.pools if pool.role != "encode") or (Pool(
            name="default", replicas=self.topology.replicas, **{name: getattr(self, name) for name in OF_POOLS}),)
        return completed(pools, self.parts())

    def encode_pools(self) -> tuple[Pool, ...]:
        """Return the pools with role encode."""
        return completed((pool for pool in self.pools if pool.role == "encode"), self.parts())


# Tables of the experiment that a pool has, too.
OF_POOLS = tuple(name for name in Pool.__struct_fields__ if name in Experiment.__struct_fields__ and name != "name")


def _with_origins(fields: dict[str, Any], origins: Any) -> Experiment:
    """Return an experiment that came from another process."""
    made = Experiment(**fields)
    if origins is not None:
        made.__dict__["origins"] = origins
    return made
