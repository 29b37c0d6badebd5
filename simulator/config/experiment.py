"""The experiment file, one Struct a table: its keys, their types, limits, defaults and meaning.

A Struct with a field `parameters` lets one of its keys choose a class by name; the keys that the Struct does not know
itself belong to that class and are found in `parameters` (see simulator.config.fields).
"""
import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from simulator.domain.autoscaling import Autoscaling
from simulator.domain.costs import Carbon, Electricity, Power, Price
from simulator.domain.data_parallel import DataParallel
from simulator.domain.dtypes import KvCacheDtype, WeightFormat
from simulator.domain.embeddings import Embeddings
from simulator.domain.experts import Experts
from simulator.domain.failures import Failure, Health
from simulator.domain.gateway import GatewayQueueParameters
from simulator.domain.host import HostParameters
from simulator.domain.kv_transfer import KvTransfer
from simulator.domain.load import Load, Measure, Warmup
from simulator.domain.slo_classes import SloClass, by_name
from simulator.domain.traits import Adapters, Images, OutputKnowledge

MAX_EVENTS = 2_000_000  # of trace.json: some 220 MB
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
        "models/<name>.toml, or its repository on the Hugging Face hub"))] = None
    config: Annotated[str | None, Meta(extra={"path": True}, description=(
        "instead of a name: a Hugging Face config.json"))] = None
    dtype: Annotated[WeightFormat | None, Meta(description=(
        "format of the weights; default: as the checkpoint stores them. fp8_block: a float32 scale for each 128 x 128 "
        "weights; nvfp4: 8 bits for 16; mxfp4: 8 bits for 32, experts alone; awq, gptq: 20 bits for 128; int4_wo: 16 "
        "bits for 128; the others: scales are not counted"))] = None
    kv_cache_dtype: Annotated[KvCacheDtype, Meta(description=(
        "format of the KV cache; auto: what the checkpoint declares, else the model's dtype"))] = "auto"


class Hardware(Section, kw_only=True):
    """The accelerator, [hardware]."""

    name: Annotated[str, Meta(extra={"facts": "hardware"}, description="hardware/<name>.toml")]


class Topology(Section, kw_only=True):
    """How many accelerators, and who holds what, [topology]."""

    replicas: Annotated[Count, Meta(description="serving instances")] = 1
    tensor_parallel: Annotated[Count, Meta(description="within a replica")] = 1
    pipeline_parallel: Annotated[Count, Meta(description="within a replica")] = 1
    expert_parallel: Annotated[Count, Meta(description=(
        "within a replica; with data_parallel or prefill_context_parallel above 1: 1, or tensor_parallel x that"))] = 1
    data_parallel: Annotated[Count, Meta(description=(
        "ranks of a replica, of attention: each has a queue and KV blocks of its own; see [engine.data_parallel]"))] = 1
    decode_context_parallel: Annotated[Count, Meta(description=(
        "of the tensor_parallel accelerators, those that share the KV of a sequence: a KV block holds as many times "
        "block_size tokens"))] = 1
    prefill_context_parallel: Annotated[Count, Meta(description=(
        "ranks of tensor_parallel accelerators each that divide the prompts of a replica; each keeps all KV and "
        "computes all decodes"))] = 1
    cp_kv_cache_interleave_size: Annotated[Count, Meta(extra={"unit": "tokens"}, description=(
        "that lie on one of these before the next has its turn"))] = 1
    dcp_comm_backend: Annotated[Literal["ag_rs", "a2a"], Meta(description=(
        "how these combine what they have attended to: all-gather and reduce-scatter, or all-to-all"))] = "ag_rs"
    node: Annotated[str | None, Meta(extra={"facts": "node"}, description=(
        "hardware/nodes/<name>.toml: GPUs per node, NVLink domain, NICs; default: the accelerator's usual one, where a "
        "replica has more accelerators than its links join"))] = None
    pd_node_ratio: Annotated[Annotated[float, Meta(gt=0, le=1)] | None, Meta(description=(
        "SimAI's key, instead of [[pools]]: the share of the replicas, rounded down, that compute prompts, a pool with "
        "role = \"prefill\"; the others are one with role = \"decode\"; 1: each does both"))] = None

    @property
    def accelerators(self) -> int:
        """Of a replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel * self.prefill_context_parallel


class Engine(Section, kw_only=True):
    """The serving engine, [engine], with the scheduler's own keys."""

    scheduler: Annotated[str, Meta(description="which requests run next")] = "vllm"
    max_model_len: Annotated[Annotated[int, Meta(ge=2, le=2**31 - 1)] | None, Meta(description=(
        "tokens of a request, prompt and output; default: the model's"))] = None
    allow_long_max_model_len: Annotated[bool, Meta(description=(
        "take a max_model_len above the model's maximum; vLLM's VLLM_ALLOW_LONG_MAX_MODEL_LEN"))] = False
    block_size: Annotated[Annotated[int, Meta(ge=1, le=2**20)] | None, Meta(description=(
        "tokens in a KV block; default: the engine's, 16, but 32 with tensorrt_llm, 1 with sglang and lightllm"
        ))] = None
    num_gpu_blocks: Annotated[Annotated[int, Meta(ge=2, le=2**31 - 1)] | None, Meta(description=(
        "KV blocks, with those that the scheduler holds back (vllm: the null block); default: what "
        "the engine's rule leaves beside the weights, as `fit --explain` shows"))] = None
    gpu_memory_utilization: Annotated[Annotated[float, Meta(gt=0, le=1)] | None, Meta(description=(
        "share of memory that vLLM may use; default: 0.9; other engines have their own keys"))] = None
    enable_prefix_caching: Annotated[bool, Meta(description="requests share the KV blocks of equal prefixes")] = True
    fast_forward: Annotated[bool, Meta(description=(
        "advance runs of equal iterations at once; the results are the same"))] = True
    experts: Annotated[Experts | None, Meta(description=(
        "how experts of a mixture are laid out, chosen and fed; absent: evenly loaded, each held once"))] = None
    data_parallel: Annotated[DataParallel | None, Meta(description=(
        "how the ranks of a replica work side by side, where topology.data_parallel is above 1; absent: as vLLM's"
    ))] = None
    parameters: Annotated[Any, Meta(extra={"kind": "scheduler"})]

    def __post_init__(self):
        own = getattr(type(self.parameters), "ENGINE_DEFAULTS", {})     # of the engine whose scheduler this is
        for key, usual in (("block_size", 16), ("gpu_memory_utilization", 0.9)):
            if getattr(self, key) is None:
                msgspec.structs.force_setattr(self, key, own.get(key, usual))


class Collective(Section, kw_only=True):
    """How accelerators exchange data, [latency.collective], with the model's keys."""

    backend: Annotated[str, Meta(description="what predicts the duration of a collective")]
    parameters: Annotated[Any, Meta(extra={"kind": "collective"})]


class Latency(Section, kw_only=True):
    """How long an iteration takes, [latency], with the backend's own keys."""

    backend: Annotated[str, Meta(description="what predicts the duration of an iteration")] = "roofline"
    resolution_us: Annotated[float, Meta(ge=0, le=1e6, description=(
        "0: nearest nanosecond; otherwise durations, those of the host too, are truncated to multiples of it"))] = 0.0
    uncertainty: Annotated[bool, Meta(description=(
        "run again with the times of operators off as far as their tables were where points were left out: intervals "
        "in the summary"))] = False
    uncertainty_replications: Annotated[Annotated[int, Meta(ge=4, le=4096)] | None, Meta(description=(
        "how many times; with uncertainty; default: 16"))] = None
    uncertainty_share: Annotated[Annotated[float, Meta(gt=0, lt=1)] | None, Meta(description=(
        "share of the replications that lies in an interval; with uncertainty; default: 0.8, the 10th to the 90th "
        "percentile"))] = None
    host: Annotated[HostParameters, Meta(description="time outside the GPU")]
    collective: Annotated[Collective | None, Meta(description=(
        "how long accelerators take to exchange data; absent: as the backend has it"))] = None
    parameters: Annotated[Any, Meta(extra={"kind": "latency"})]


class KvTiers(Section, kw_only=True):
    """KV beyond the blocks of a replica, [kv_tiers], with the keys of its protocol."""

    protocol: Annotated[str, Meta(description="which system keeps it, and how")] = "vllm_offload"
    parameters: Annotated[Any, Meta(extra={"kind": "kv_tier"})]


class Pool(Section, kw_only=True):
    """Equal replicas, [[pools]]; its tables are laid over those of the experiment."""

    name: Annotated[str, Meta(min_length=1, description="of the pool, in results and messages")]
    replicas: Annotated[Annotated[int, Meta(ge=0, le=2**20)] | None, Meta(description=(
        "serving instances at time 0; default: topology.replicas"))] = None
    max_replicas: Annotated[Count | None, Meta(description="that autoscaling may reach; default: replicas")] = None
    serves: Annotated[str | None, Meta(description=(
        "requests whose column model says so; default: all that no other pool serves"))] = None
    role: Annotated[Literal["both", "prefill", "decode", "encode"] | None, Meta(description=(
        "what it computes: prompts alone, for decode pools to go on with; what follows them, and requests that are not "
        "split; or any of it. Pools for one of the two need [kv_transfer]. encode: the images in prompts, ahead of "
        "those, with [embeddings]; default: both"))] = None
    infer_type: Annotated[Literal["neutral", "prefill", "decode"] | None, Meta(description=(
        "Llumnix's word for role, neutral for both"))] = None
    nodes_per_unit: Annotated[Count, Meta(description="nodes that fail together, a rack for instance")] = 1
    cost_per_hour: Annotated[float, Meta(ge=0, le=1e9, description="of a replica, in any currency")] = 0.0
    model: Annotated[Model | None, Meta(description="over [model]")] = None
    hardware: Annotated[Hardware | None, Meta(description="over [hardware]")] = None
    topology: Annotated[Topology, Meta(description="over [topology]")]
    engine: Annotated[Engine, Meta(description="over [engine]")]
    latency: Annotated[Latency, Meta(description="over [latency]")]
    kv_tiers: Annotated[KvTiers | None, Meta(description="over [kv_tiers]")] = None

    def __post_init__(self):
        meant = {None: self.role, "neutral": "both"}.get(self.infer_type, self.infer_type)
        if self.role not in (None, meant):
            raise ValueError(f'role = "{self.role}" and infer_type = "{self.infer_type}" say different things of pool '
                             f'"{self.name}": give one of them')
        msgspec.structs.force_setattr(self, "role", meant or "both")
        msgspec.structs.force_setattr(self, "infer_type", None)


class Admission(Section, kw_only=True):
    """Whether a request is let in, [cluster.admission], with the policy's own keys."""

    policy: Annotated[str, Meta(description="whether a request is let in")] = "always"
    latency_s: Annotated[float, Meta(ge=0, le=1e6, description="the decision takes that long")] = 0.0
    parameters: Annotated[Any, Meta(extra={"kind": "admission"})]


class Scorer(Section, kw_only=True):
    """One of the scores that a router adds up, with the scorer's own keys."""

    name: Annotated[str, Meta(description="what is scored")]
    weight: Annotated[float, Meta(gt=0, description="the share of this score in the sum, in any unit")]
    parameters: Annotated[Any, Meta(extra={"kind": "scorer"})]


class LegRouting(Section, kw_only=True):
    """Which replica gets a part of a request, with the router's own keys."""

    policy: Annotated[str, Meta(description="which replica gets a request")] = "round_robin"
    snapshot_refresh_interval_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "age up to which the router's view of the replicas is reused; 0: always live"))] = 0.0
    cache_signal_delay_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "age up to which what the router saw of prefix caches is reused; 0: always live"))] = 0.0
    latency_s: Annotated[float, Meta(ge=0, le=1e6, description="the decision takes that long")] = 0.0
    scorers: Annotated[tuple[Scorer, ...], Meta(extra={"needs": "takes_scorers"}, description=(
        "what the policy weighted adds up, or one of your own; default: those of its profile"))] = ()
    parameters: Annotated[Any, Meta(extra={"kind": "router"})]


class Routing(LegRouting, kw_only=True):
    """Which replica gets a request, [cluster.routing], with the router's own keys."""

    retry_timeout_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "keep retrying a request that no replica accepts for this long; 0: refuse it immediately"))] = 0.0
    retry_interval_s: Annotated[float, Meta(gt=1e-6, le=1e6, description="and so often")] = 1.0


class EncodeRouting(Section, kw_only=True):
    """Which encode replica gets an item, [cluster.encode], with the router's keys."""

    policy: Annotated[str, Meta(description=(
        "which replica gets an item: round_robin, random, least_loaded, power_of_two, or consistent_hash, by what the "
        "item shows"))] = "round_robin"
    parameters: Annotated[Any, Meta(extra={"kind": "router"})]


class Rescheduling(Section, kw_only=True):
    """Requests that move, [cluster.rescheduling], with the rescheduler's own keys."""

    policy: Annotated[str, Meta(description="which requests move, and from where to where")] = "rebalance"
    interval_s: Annotated[Annotated[float, Meta(ge=1e-6, le=1e6)] | None, Meta(description=(
        "time between two plans; default: the rescheduler's"))] = None
    mode: Annotated[Literal["live", "blocking", "recompute"], Meta(description=(
        "KV is copied while the request runs on, or while it stands still, or is computed again"))] = "live"
    max_migrations_in: Annotated[Count, Meta(extra={"unit": "requests"}, description=(
        "on their way to a replica, at most"))] = 1
    max_migrations_out: Annotated[Count, Meta(extra={"unit": "requests"}, description=(
        "on their way from a replica, at most"))] = 1
    max_stages: Annotated[Count, Meta(description="live: copies, the one while it stands still included")] = 3
    last_stage_blocks: Annotated[Count, Meta(description=(
        "live: when no more are left to copy, the request stands still"))] = 16
    bandwidth_gb_per_s: Annotated[Annotated[float, Meta(gt=0, le=1e9)] | None, Meta(description=(
        "of a replica's link, in each direction; default: of its accelerators, within a scale-up domain and beyond"
    ))] = None
    latency_s: Annotated[float, Meta(ge=0, le=1e6, description="of each copy, besides")] = 0.0
    kv_bytes_per_token: Annotated[Annotated[float, Meta(gt=0, le=1e12)] | None, Meta(description=(
        "on all accelerators of a replica; default: the model's"))] = None
    parameters: Annotated[Any, Meta(extra={"kind": "rescheduler"})]


class Disaggregation(Section, kw_only=True):
    """Which requests are split, [cluster.disaggregation], with the decider's keys."""

    decider: Annotated[str, Meta(description=(
        "whether the prompt of a request is computed apart; else a decode replica does all of it"))] = "always"
    stage_order: Annotated[Literal["decode_first", "prefill_first"], Meta(description=(
        "decode_first: the replica for what follows the prompt is chosen when a request comes, before the decider is "
        "asked; prefill_first: when the prompt has been computed"))] = "decode_first"
    prefill: Annotated[LegRouting | None, Meta(description=(
        "which replica gets a prompt, with the keys of its router; absent: as [cluster.routing] says, which also says "
        "when it is tried again"))] = None
    decode: Annotated[LegRouting | None, Meta(description=(
        "which replica gets what follows it, or all; absent: likewise"))] = None
    parameters: Annotated[Any, Meta(extra={"kind": "decider"})]


class Cluster(Section, kw_only=True):
    """What stands before the replicas, [cluster]."""

    give_up_after_s: Annotated[Patience, Meta(description=(
        "a run ends, and says so, in which requests wait at a gateway and nothing else has happened for so long, as "
        "simulated"))] = 600.0
    give_up_failing_after_s: Annotated[Patience, Meta(description=(
        "the same where replicas fail and are repaired meanwhile, so that none takes a request"))] = 60_000.0
    admission: Annotated[Admission, Meta(description="whether a request is let in, with the keys of its policy")]
    gateway_queue: Annotated[GatewayQueueParameters | None, Meta(description=(
        "where requests wait until replicas can take them; absent: they are routed at once"))] = None
    routing: Annotated[Routing, Meta(description="which replica gets a request, with the keys of its router")]
    rescheduling: Annotated[Rescheduling | None, Meta(description=(
        "requests that move between replicas; absent: they stay"))] = None
    disaggregation: Annotated[Disaggregation | None, Meta(description=(
        "which requests are split between prefill and decode pools; absent: all"))] = None
    encode: Annotated[EncodeRouting | None, Meta(description=(
        "which replica of encode pools gets an item, with the keys of its router; absent: one after the other"))] = None
    health: Annotated[Health, Meta(description="how the gateway learns that a replica does not answer")]


class Workload(Section, kw_only=True):
    """The requests, [workload], with the keys of their type."""

    type: Annotated[str, Meta(description="where requests come from")]
    load: Annotated[Load, Meta(description="how they come")]
    measure: Annotated[Measure, Meta(description="which of them count")]
    warmup: Annotated[Warmup, Meta(description="what is sent before them")]
    cancel_at_deadline: Annotated[bool, Meta(description=(
        "who has not got the whole answer when deadline_s is over gives up; false: waits on, and the miss is counted"
    ))] = True
    output_knowledge: Annotated[OutputKnowledge, Meta(description="what policies know of output lengths")]
    adapters: Annotated[Adapters | None, Meta(description=(
        "who asks for which LoRA adapter; absent: as the trace says"))] = None
    images: Annotated[Images | None, Meta(description="images in prompts; absent: as the trace says")] = None
    parameters: Annotated[Any, Meta(extra={"kind": "workload"})]

    def __post_init__(self):
        for table in ("load", "measure", "warmup"):         # a preset may say how requests come, and which count
            if fill := getattr(self.parameters, f"fill_{table}", None):
                msgspec.structs.force_setattr(self, table, fill(getattr(self, table)))

    @property
    def filled_by(self) -> str | None:
        """What fills in keys of these tables."""
        return getattr(self.parameters, "filled_by", None)


class Slo(Section, kw_only=True):
    """Goodput counts the requests that keep every bound given here, [slo]."""

    ttft_ms: Annotated[BoundMs | None, Meta(description="time to first token")] = None
    tpot_ms: Annotated[BoundMs | None, Meta(description="time per output token after the first")] = None
    e2el_ms: Annotated[BoundMs | None, Meta(description="end-to-end latency")] = None
    classes: Annotated[tuple[SloClass, ...], Meta(description="priorities, and bounds that win over those above")] = ()

    def __post_init__(self):
        by_name(self.classes)       # refuses two of one name


class Output(Section, kw_only=True):
    """What is written, [output]."""

    directory: Annotated[str | None, Meta(extra={"path": True}, description="default: results/<name>")] = None
    requests: Annotated[bool, Meta(description="per-request table")] = True
    iterations: Annotated[bool, Meta(description="per-iteration table")] = True
    chrome_trace: Annotated[bool, Meta(description="trace.json for chrome://tracing and Perfetto")] = False
    chrome_trace_window_s: Annotated[tuple[Annotated[float, Meta(ge=0, le=LAST_SECOND)], ...], Meta(
        description="what trace.json shows, [from, to] of simulated time; absent: all")] = ()
    chrome_trace_max_events: Annotated[int, Meta(ge=0, le=2**40, description=(
        "it ends where there are so many, half of them of iterations (10^6 are some 110 MB); 0: nowhere"))] = MAX_EVENTS
    token_times: Annotated[bool, Meta(description="every token's time, per request")] = False
    replica_samples_s: Annotated[float, Meta(ge=0, le=1e6, description=(
        "time between two looks at queue, KV blocks and requests of every replica; 0: nobody looks"))] = 0.0
    decisions: Annotated[int, Meta(ge=0, le=2**20, description=(
        "write down each routing decision and that many replicas, the best first; 0: nothing"))] = 0
    vidur_csv: Annotated[bool, Meta(description=(
        "request_metrics.csv and batch_metrics.csv with the columns of Vidur; `export` writes the rest of its files"
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
    """Weights of one number by which runs can be compared, [fitness].

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


class Experiment(Section, kw_only=True):
    """One experiment, complete: equal experiments give equal results."""

    name: Annotated[str, Meta(pattern=r"^\w[\w.+ -]{0,199}$", description=(
        "names the results; letters, digits and . _ + - ; default: the file's, with _ for others"))]
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="of every random stream")] = 0
    horizon_s: Annotated[float, Meta(gt=0, extra={"inf": True}, description=(
        "stop the clock here; what is unfinished is counted, never lost; more than 9e9 is inf"))] = math.inf
    model: Annotated[Model | None, Meta(description="the language model")] = None
    hardware: Annotated[Hardware | None, Meta(description="the accelerator")] = None
    topology: Annotated[Topology, Meta(description="how many accelerators, and who holds what")]
    engine: Annotated[Engine, Meta(description="the serving engine, with the keys of its scheduler")]
    latency: Annotated[Latency, Meta(description="how long an iteration takes, with the keys of its backend")]
    kv_tiers: Annotated[KvTiers | None, Meta(description=(
        "KV beyond the blocks of a replica, with the keys of its protocol; absent: there is none"))] = None
    pools: Annotated[tuple[Pool, ...], Meta(description="replicas of several kinds; absent: all are alike")] = ()
    cluster: Annotated[Cluster, Meta(description="what stands before the replicas")]
    kv_transfer: Annotated[KvTransfer | None, Meta(description=(
        "how KV comes from prefill to decode pools; needed where there are any"))] = None
    embeddings: Annotated[Embeddings | None, Meta(description=(
        "how embeddings come from encode pools to where prompts are computed; needed where there are any"))] = None
    failures: Annotated[tuple[Failure, ...], Meta(description="what goes wrong with replicas")] = ()
    autoscaling: Annotated[Autoscaling | None, Meta(description=(
        "when replicas come and go, with the keys of the policy; absent: they stay as they are"))] = None
    workload: Annotated[Workload, Meta(description="the requests, with the keys of their type")]
    slo: Annotated[Slo, Meta(description="bounds for goodput")]
    fitness: Annotated[Fitness | None, Meta(description="weights of one number to compare runs by")] = None
    prices: Annotated[dict[str, Price] | None, Meta(extra={"facts": "hardware"}, description=(
        "what accelerators cost, by their names, or a TOML file that says so; pools.cost_per_hour wins"))] = None
    power: Annotated[dict[str, Power] | None, Meta(extra={"facts": "hardware"}, description=(
        "what accelerators draw, by their names, or a TOML file that says so; absent: no energy"))] = None
    carbon: Annotated[Carbon | None, Meta(description="what a kilowatt-hour emits")] = None
    electricity: Annotated[Electricity | None, Meta(description="what a kilowatt-hour costs")] = None
    output: Annotated[Output, Meta(description="what is written")]

    def __post_init__(self):
        if self.horizon_s > LAST_SECOND:
            msgspec.structs.force_setattr(self, "horizon_s", math.inf)

    def all_pools(self) -> tuple[Pool, ...]:
        """Return the pools that compute tokens; one where the experiment has none."""
        pools = tuple(pool for pool in self.pools if pool.role != "encode") or (Pool(
            name="default", replicas=self.topology.replicas, model=self.model, hardware=self.hardware,
            topology=self.topology, engine=self.engine, latency=self.latency, kv_tiers=self.kv_tiers),)
        most = self.autoscaling and self.autoscaling.max_replicas
        return tuple(replace(pool, max_replicas=pool.max_replicas or most, cost_per_hour=self._cost_per_hour(pool))
                     for pool in pools)

    def encode_pools(self) -> tuple[Pool, ...]:
        """Return the pools that encode for these."""
        return tuple(replace(pool, cost_per_hour=self._cost_per_hour(pool)) for pool in self.pools
                     if pool.role == "encode")

    def _cost_per_hour(self, pool: Pool) -> float:
        """Return what a replica costs: as its pool says, else by [prices]."""
        if pool.cost_per_hour or not self.prices or pool.hardware is None:
            return pool.cost_per_hour
        return self.prices[pool.hardware.name].per_gpu_hour * pool.topology.accelerators
