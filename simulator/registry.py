"""Registry of built-in choices: kind -> name -> "module:Class", imported when it is first used.

One line here adds a built-in. Users select their own class by the same key of the experiment file, written as
`"module:Class"`. A class may carry `Parameters`, a frozen msgspec.Struct: the keys beside its name. An installed
package adds names by entry points of the group `simulator.KIND`; `API_VERSION` of a class: the headers of its build.
"""
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple

import msgspec

from simulator import API_VERSION
from simulator.errors import BadAnswer, InputErrors, did_you_mean
from simulator.extending.user_modules import import_beside


class Kind(NamedTuple):
    """A kind of component that is chosen by name."""

    title: str                  # its name in messages
    key: str                    # the key of its table that holds the name
    entries: dict[str, str]     # name -> "module:Class"
    base: str | None = None     # "module:Class" that a user's class must inherit; None: methods are enough


KINDS = {
    "scheduler": Kind("scheduler", "scheduler", {
        "andes": "simulator.scheduling.andes:Andes",
        "blis": "simulator.scheduling.blis:Blis",
        "edf": "simulator.scheduling.edf:Edf",
        "faster_transformer": "simulator.scheduling.faster_transformer:FasterTransformer",
        "fastserve": "simulator.scheduling.fastserve:Fastserve",
        "lightllm": "simulator.scheduling.lightllm:Lightllm",
        "orca": "simulator.scheduling.orca:Orca",
        "sarathi": "simulator.scheduling.sarathi:Sarathi",
        "sarathi_slo": "simulator.scheduling.sarathi_slo:SarathiSlo",
        "sglang": "simulator.scheduling.sglang:Sglang",
        "sjf_aging": "simulator.scheduling.sjf_aging:SjfAging",
        "split_wise": "simulator.scheduling.split_wise:SplitWise",
        "tensorrt_llm": "simulator.scheduling.tensorrt_llm:TensorrtLlm",
        "vllm": "simulator.scheduling.vllm:Vllm",
        "vllm_v0": "simulator.scheduling.vllm_v0:VllmV0",
        "vtc": "simulator.scheduling.vtc:Vtc",
    }, "simulator.scheduling.base:Scheduler"),
    "latency": Kind("latency backend", "backend", {
        "aicb": "simulator.latency.aicb.model:Aicb",
        "blackbox": "simulator.latency.blis.blackbox:Blackbox",
        "crossmodel": "simulator.latency.blis.crossmodel:Crossmodel",
        "forest": "simulator.latency.forest.model:Forest",
        "linear": "simulator.latency.linear:Linear",
        "operators": "simulator.latency.operators.model:Operators",
        "roofline": "simulator.latency.roofline.model:Roofline",
        "step_roofline": "simulator.latency.blis.step_roofline:StepRoofline",
        "trained_physics": "simulator.latency.blis.trained_physics:TrainedPhysics",
    }, "simulator.latency.base:LatencyModel"),
    "collective": Kind("collective model", "backend", {
        "busbw": "simulator.collective.busbw.model:Busbw",
        "external": "simulator.collective.external.model:External",
        "flow": "simulator.collective.flow.model:Flow",
        "table": "simulator.collective.table.model:Table",
    }, "simulator.collective.base:CollectiveModel"),
    "kv_tier": Kind("protocol of KV tiers", "protocol", {
        "blis_chain": "simulator.kv.tiers.protocols.blis_chain:BlisChain",
        "blis_mirror": "simulator.kv.tiers.protocols.blis_mirror:BlisMirror",
        "blis_offload": "simulator.kv.tiers.protocols.blis_offload:BlisOffload",
        "hicache": "simulator.kv.tiers.protocols.hicache:Hicache",
        "kvbm": "simulator.kv.tiers.protocols.kvbm:Kvbm",
        "lmcache": "simulator.kv.tiers.protocols.lmcache:Lmcache",
        "mooncake_store": "simulator.kv.tiers.protocols.mooncake_store:MooncakeStore",
        "vllm_offload": "simulator.kv.tiers.protocols.vllm_offload:VllmOffload",
        "vllm_simple": "simulator.kv.tiers.protocols.vllm_simple:VllmSimple",
    }, "simulator.kv.tiers.protocols.base:Protocol"),
    "kv_eviction": Kind("eviction policy of KV tiers", "eviction_policy", {
        "arc": "simulator.kv.tiers.arc:Arc",
        "free_queue": "simulator.kv.tiers.free_queue:FreeQueue",
        "lru": "simulator.kv.tiers.lru:Lru",
    }, "simulator.kv.tiers.eviction:EvictionPolicy"),
    "admission": Kind("admission policy", "policy", {
        "always": "simulator.admission.always:Always",
        "latency_slo": "simulator.admission.latency_slo:LatencySlo",
        "probabilistic": "simulator.admission.probabilistic:Probabilistic",
        "reject_all": "simulator.admission.reject_all:RejectAll",
        "saturation_shed": "simulator.admission.saturation_shed:SaturationShed",
        "tenant_budgets": "simulator.admission.tenant_budgets:TenantBudgets",
        "tier_shed": "simulator.admission.tier_shed:TierShed",
        "token_bucket": "simulator.admission.token_bucket:TokenBucket",
        "token_quota": "simulator.admission.token_quota:TokenQuota",
    }, "simulator.admission.base:Admission"),
    "saturation": Kind("saturation detector", "detector", {
        "concurrency": "simulator.admission.saturation.concurrency:Concurrency",
        "never": "simulator.admission.saturation.never:Never",
        "token_bucket": "simulator.admission.saturation.token_bucket:TokensInFlight",
        "utilisation": "simulator.admission.saturation.utilisation:Utilisation",
    }, "simulator.admission.saturation.base:SaturationDetector"),
    "programs": Kind("program policy", "policy", {
        "none": "simulator.admission.programs.none:Unmanaged",
        "thunderagent": "simulator.admission.programs.thunderagent:ThunderAgent",
    }, "simulator.admission.programs.base:ProgramPolicy"),
    "autoscaler": Kind("autoscaler", "policy", {
        "apa": "simulator.scaling.apa:Apa",
        "blis": "simulator.scaling.blis:Blis",
        "dynamo_planner": "simulator.scaling.dynamo.planner:DynamoPlanner",
        "hpa": "simulator.scaling.hpa:Hpa",
        "kpa": "simulator.scaling.kpa:Kpa",
        "mix": "simulator.scaling.mix:Mix",
        "planner": "simulator.scaling.planner:Planner",
        "queue": "simulator.scaling.queue:Queue",
        "queueing": "simulator.scaling.queueing:Queueing",
        "saturation_v1": "simulator.scaling.saturation_v1:SaturationV1",
        "saturation_v2": "simulator.scaling.saturation_v2:SaturationV2",
        "schedule": "simulator.scaling.schedule:Schedule",
        "slo_attainment": "simulator.scaling.slo_attainment:SloAttainment",
        "utilisation": "simulator.scaling.utilisation:Utilisation",
    }, "simulator.scaling.base:Autoscaler"),
    "router": Kind("router", "policy", {
        "always_busiest": "simulator.routing.policies.always_busiest:AlwaysBusiest",
        "bucket": "simulator.routing.policies.bucket:Bucket",
        "cache_aware": "simulator.routing.policies.cache_aware:CacheAware",
        "consistent_hash": "simulator.routing.policies.consistent_hash:ConsistentHash",
        "dynamo": "simulator.routing.policies.dynamo:Dynamo",
        "kvaware": "simulator.routing.policies.kvaware:Kvaware",
        "least_busy_time": "simulator.routing.policies.least_busy_time:LeastBusyTime",
        "least_latency": "simulator.routing.policies.least_latency:LeastLatency",
        "least_loaded": "simulator.routing.policies.least_loaded:LeastLoaded",
        "least_throughput": "simulator.routing.policies.least_throughput:LeastThroughput",
        "litellm_latency": "simulator.routing.policies.litellm_latency:LitellmLatency",
        "litellm_usage": "simulator.routing.policies.litellm_usage:LitellmUsage",
        "llumnix": "simulator.routing.llumnix.router:Llumnix",
        "lmetric": "simulator.routing.policies.lmetric:Lmetric",
        "lor": "simulator.routing.policies.lor:Lor",
        "manual": "simulator.routing.policies.manual:Manual",
        "power_of_two": "simulator.routing.policies.power_of_two:PowerOfTwo",
        "prefix_hash": "simulator.routing.policies.prefix_hash:PrefixHash",
        "prefix_preble": "simulator.routing.policies.prefix_preble:PrefixPreble",
        "prefix_threshold": "simulator.routing.policies.prefix_threshold:PrefixThreshold",
        "prefixaware": "simulator.routing.policies.prefixaware:Prefixaware",
        "random": "simulator.routing.policies.random:Random",
        "round_robin": "simulator.routing.policies.round_robin:RoundRobin",
        "session": "simulator.routing.policies.session:Session",
        "slo_least_load": "simulator.routing.policies.slo_load:SloLeastLoad",
        "slo_pack_load": "simulator.routing.policies.slo_load:SloPackLoad",
        "split_wise": "simulator.routing.policies.round_robin:RoundRobin",
        "vllm_dp": "simulator.routing.policies.vllm_dp:VllmDp",
        "vtc": "simulator.routing.policies.vtc:Vtc",
        "waiting_limit": "simulator.routing.policies.waiting_limit:WaitingLimit",
        "weighted": "simulator.routing.policies.weighted:Weighted",
        "weighted_random": "simulator.routing.policies.weighted_random:WeightedRandom",
    }, "simulator.routing.base:Router"),
    "decider": Kind("decider", "decider", {
        "always": "simulator.routing.disaggregation.always:Always",
        "isl_bounding": "simulator.routing.disaggregation.isl_bounding:IslBounding",
        "isl_or_load": "simulator.routing.disaggregation.isl_or_load:IslOrLoad",
        "never": "simulator.routing.disaggregation.never:Never",
        "prefill_load": "simulator.routing.disaggregation.prefill_load:PrefillLoad",
        "prefix_threshold": "simulator.routing.disaggregation.prefix_threshold:PrefixThreshold",
    }, "simulator.routing.disaggregation.base:Decider"),
    "rescheduler": Kind("rescheduler", "policy", {
        "llumnix": "simulator.routing.llumnix.rescheduler:LlumnixRescheduler",
        "rebalance": "simulator.routing.rescheduling.rebalance:Rebalance",
    }, "simulator.routing.rescheduling.base:Rescheduler"),
    "scorer": Kind("scorer", "name", {
        "active-requests": "simulator.routing.scoring.load:ActiveRequests",
        "burst-prefix": "simulator.routing.scoring.burst:BurstPrefix",
        "context-length": "simulator.routing.scoring.attribute:ContextLength",
        "endpoint-attribute": "simulator.routing.scoring.attribute:EndpointAttribute",
        "header-label": "simulator.routing.scoring.label:HeaderLabel",
        "kv-utilization": "simulator.routing.scoring.load:KvUtilisation",
        "latency-headroom": "simulator.routing.scoring.latency:LatencyHeadroom",
        "load-aware": "simulator.routing.scoring.load:LoadAware",
        "load-balance": "simulator.routing.scoring.load:LoadBalance",
        "lora-affinity": "simulator.routing.scoring.affinity:LoraAffinity",
        "mm-cache-affinity": "simulator.routing.scoring.items:MmCacheAffinity",
        "no-hit-lru": "simulator.routing.scoring.prefix:NoHitLru",
        "precise-prefix-cache": "simulator.routing.scoring.prefix:PrecisePrefixCache",
        "prefix-affinity": "simulator.routing.scoring.prefix:PrefixAffinity",
        "queue-depth": "simulator.routing.scoring.load:QueueDepth",
        "running-requests": "simulator.routing.scoring.load:RunningRequests",
        "session-affinity": "simulator.routing.scoring.affinity:SessionAffinity",
        "token-load": "simulator.routing.scoring.load:TokenLoad",
        "vllm-dp": "simulator.routing.scoring.load:VllmDpScorer",
    }, "simulator.routing.scoring.base:Scorer"),
    "filter": Kind("filter", "name", {
        "concurrency-detector": "simulator.routing.filters.load:ConcurrencyDetector",
        "endpoint-attribute": "simulator.routing.filters.attribute:EndpointAttributeFilter",
        "label-selector": "simulator.routing.filters.attribute:LabelSelector",
        "prefix-affinity": "simulator.routing.filters.affinity:PrefixAffinityFilter",
        "session-affinity": "simulator.routing.filters.affinity:SessionAffinityFilter",
        "slo-headroom-tier": "simulator.routing.filters.latency:SloHeadroomTier",
        "utilization": "simulator.routing.filters.load:Utilization",
        "utilization-detector": "simulator.routing.filters.load:UtilizationDetector",
    }, "simulator.routing.filters.base:Filter"),
    "workload": Kind("workload", "type", {
        "clients": "simulator.workload.types.clients:OfClients",
        "sessions": "simulator.workload.types.sessions:SessionsWorkload",
        "synthetic": "simulator.workload.types.synthetic:Synthetic",
        "trace": "simulator.workload.types.trace:Trace",
        "vidur": "simulator.workload.types.vidur:Vidur",
        "vllm_multi_turn": "simulator.workload.types.vllm_multi_turn:VllmMultiTurn",
    }),
    "trace_format": Kind("trace format", "format", {
        "agentic_mooncake": "simulator.workload.formats.agentic_mooncake:AgenticMooncake",
        "aiperf_dag": "simulator.workload.formats.aiperf_dag:AiperfDag",
        "applied_compute": "simulator.workload.formats.applied_compute:AppliedCompute",
        "azure": "simulator.workload.formats.azure:Azure",
        "bailian": "simulator.workload.formats.bailian:Bailian",
        "burstgpt": "simulator.workload.formats.burstgpt:Burstgpt",
        "csv": "simulator.workload.formats.native_csv:NativeCsv",
        "dynamo": "simulator.workload.formats.dynamo:Dynamo",
        "llmservingsim": "simulator.workload.formats.llmservingsim:LlmServingSim",
        "mooncake": "simulator.workload.formats.mooncake:Mooncake",
        "mooncake_delta": "simulator.workload.formats.mooncake_delta:MooncakeDelta",
        "observed": "simulator.workload.formats.observed:Observed",
        "sharegpt": "simulator.workload.formats.chats:Chats",
        "timed_trace": "simulator.workload.formats.timed_trace:TimedTrace",
        "tracelab": "simulator.workload.formats.tracelab:TraceLab",
        "tracev2": "simulator.workload.formats.tracev2:TraceV2",
        "weka": "simulator.workload.formats.weka:Weka",
        "wildchat": "simulator.workload.formats.chats:Chats",
    }),
    "client_format": Kind("description of clients", "format", {
        "blis": "simulator.workload.clients.blis:BlisClients",
        "servegen": "simulator.workload.clients.servegen:ServeGen",
        "toml": "simulator.workload.clients.listed:Listed",
    }),
    "arrival": Kind("arrival process", "process", {
        "burst": "simulator.workload.drawing.arrivals:Burst",
        "constant": "simulator.workload.drawing.arrivals:Constant",
        "gamma": "simulator.workload.drawing.arrivals:Gamma",
        "poisson": "simulator.workload.drawing.arrivals:Poisson",
        "trace": "simulator.workload.drawing.recorded:Times",
        "weibull": "simulator.workload.drawing.arrivals:Weibull",
    }),
    "rate": Kind("changing rate", "kind", {
        "counts": "simulator.workload.drawing.rates.counts:Counts",
        "diurnal": "simulator.workload.drawing.rates.diurnal:Diurnal",
        "mmpp": "simulator.workload.drawing.rates.mmpp:Mmpp",
        "piecewise": "simulator.workload.drawing.rates.piecewise:Piecewise",
        "spike": "simulator.workload.drawing.rates.spike:Spikes",
    }, "simulator.workload.drawing.rates.base:Rate"),
    "preset": Kind("preset", "preset", {
        "aiperf": "simulator.workload.presets.aiperf:Aiperf",
        "guidellm": "simulator.workload.presets.guidellm:Guidellm",
        "inference_perf": "simulator.workload.presets.inference_perf:InferencePerf",
        "inferencex": "simulator.workload.presets.inferencex:Inferencex",
        "none": "simulator.workload.presets.own:Own",
        "vllm_burstgpt": "simulator.workload.presets.vllm_burstgpt:VllmBurstgpt",
        "vllm_prefix_repetition": "simulator.workload.presets.vllm_prefix_repetition:VllmPrefixRepetition",
        "vllm_random": "simulator.workload.presets.vllm_random:VllmRandom",
        "vllm_sharegpt": "simulator.workload.presets.vllm_sharegpt:VllmSharegpt",
    }, "simulator.workload.presets.base:Preset"),
    "vidur_interval": Kind("vidur interval generator", "type", {
        "gamma": "simulator.workload.drawing.vidur.intervals:Gamma",
        "poisson": "simulator.workload.drawing.vidur.intervals:Poisson",
        "static": "simulator.workload.drawing.vidur.intervals:Static",
        "trace": "simulator.workload.drawing.vidur.intervals:Trace",
    }),
    "vidur_length": Kind("vidur length generator", "type", {
        "fixed": "simulator.workload.drawing.vidur.lengths:Fixed",
        "trace": "simulator.workload.drawing.vidur.lengths:Trace",
        "uniform": "simulator.workload.drawing.vidur.lengths:Uniform",
        "zipf": "simulator.workload.drawing.vidur.lengths:Zipf",
    }),
    "time_distribution": Kind("time distribution", "distribution", {
        "constant": "simulator.workload.drawing.times:Constant",
        "exponential": "simulator.workload.drawing.times:Exponential",
        "lognormal": "simulator.workload.drawing.times:Lognormal",
        "uniform": "simulator.workload.drawing.times:Uniform",
    }),
    "length_distribution": Kind("length distribution", "distribution", {
        "constant": "simulator.workload.drawing.lengths:Constant",
        "empirical": "simulator.workload.drawing.empirical:Empirical",
        "exponential": "simulator.workload.drawing.lengths:Exponential",
        "lognormal": "simulator.workload.drawing.lengths:Lognormal",
        "normal": "simulator.workload.drawing.lengths:Normal",
        "pareto_lognormal": "simulator.workload.drawing.lengths:ParetoLognormal",
        "trace": "simulator.workload.drawing.recorded:Lengths",
        "uniform": "simulator.workload.drawing.lengths:Uniform",
        "zipf": "simulator.workload.drawing.lengths:Zipf",
    }),
}


# Kind of study -> "module:Struct" of its table [study], which the parser, `validate`, `describe`, reference read.
STUDIES = {
    "sweep": "simulator.study.sweep.study_file:SweepTable",
    "capacity": "simulator.study.capacity.capacity_table:CapacityTable",
    "tune": "simulator.study.tuning.tune_table:TuneTable",
    "calibrate": "simulator.study.calibration.calibrate_table:CalibrateTable",
}

class PartKey(NamedTuple):
    """A key of the experiment file that a part reads.

    target : "module:Class" of the part, imported where an experiment gives the key.
    before : the next key of the same table, in resolved.toml and in `describe`; "": it is the last.
    default : value without the key.
    is_others : another Struct declares the key, or the class that its table chooses.
    """

    target: str
    before: str = ""
    default: Any = None
    is_others: bool = False


# Dotted key of the experiment file -> its part, see simulator/assembly/parts/base.py; operations are in this order.
# "KEY=VALUE": the part is in use if the key has this value; without a value: if it has not its default.
PARTS = {
    "kv_transfer": PartKey("simulator.assembly.parts.disaggregation:PrefillDecode", "workload"),
    "cluster.disaggregation": PartKey("simulator.assembly.parts.disaggregation:PrefillDecode", "health"),
    "topology.pd_node_ratio": PartKey("simulator.assembly.parts.disaggregation:PrefillDecode"),
    "pools[].role=prefill": PartKey("simulator.assembly.parts.disaggregation:PrefillDecode", is_others=True),
    "pools[].role=decode": PartKey("simulator.assembly.parts.disaggregation:PrefillDecode", is_others=True),
    "cluster.pool_selection": PartKey("simulator.assembly.parts.pool_selection:Selection", "routing"),
    "cluster.leg_selection": PartKey("simulator.assembly.parts.leg_selection:LegPools", "routing"),
    "cluster.traffic_split": PartKey("simulator.assembly.parts.traffic_split:Shares", "routing"),
    "cluster.fallbacks": PartKey("simulator.assembly.parts.fallbacks:Fallbacks", "routing", ()),
    "cluster.pool_selection.retry": PartKey(
        "simulator.assembly.parts.fallbacks:Fallbacks", default=(), is_others=True),
    "embeddings": PartKey("simulator.assembly.parts.encode:Encode", "workload"),
    "cluster.encode": PartKey("simulator.assembly.parts.encode:Encode", "health"),
    "pools[].role=encode": PartKey("simulator.assembly.parts.encode:Encode", is_others=True),
    "output.replica_samples_s": PartKey("simulator.assembly.parts.samples:Samples", "vidur_csv", 0.0),
    "output.streamed": PartKey("simulator.assembly.parts.streamed:Streamed", "vidur_csv", False),
    "output.requests_every": PartKey("simulator.assembly.parts.sampled_requests:SampledRequests", "vidur_csv", 0),
    "output.decisions": PartKey("simulator.assembly.parts.decisions:Decisions", "vidur_csv", 0),
    "cluster.routing.filters": PartKey("simulator.assembly.parts.filters:RouterFilters", default=(), is_others=True),
    "cluster.disaggregation.prefill.filters": PartKey(
        "simulator.assembly.parts.filters:RouterFilters", default=(), is_others=True),
    "cluster.disaggregation.decode.filters": PartKey(
        "simulator.assembly.parts.filters:RouterFilters", default=(), is_others=True),
    "cluster.routing.queue": PartKey("simulator.assembly.parts.router_queue:RouterQueuePart", is_others=True),
    "cluster.routing.scorers[].name=burst-prefix": PartKey(
        "simulator.assembly.parts.bursts:Bursts", is_others=True),
    "cluster.disaggregation.prefill.scorers[].name=burst-prefix": PartKey(
        "simulator.assembly.parts.bursts:Bursts", is_others=True),
    "cluster.disaggregation.decode.scorers[].name=burst-prefix": PartKey(
        "simulator.assembly.parts.bursts:Bursts", is_others=True),
    "cluster.rescheduling": PartKey("simulator.assembly.parts.rescheduling:Migration", "disaggregation"),
    "cluster.gateway_queue": PartKey("simulator.assembly.parts.gateway_queue:HeldBack", is_others=True),
    "cluster.gateways": PartKey("simulator.assembly.parts.gateways:Gateways", "routing"),
    "cluster.regions": PartKey("simulator.assembly.parts.regions:RegionsPart", "routing"),
    "cluster.programs": PartKey("simulator.assembly.parts.programs:AgentPrograms", "routing"),
    "failures": PartKey("simulator.assembly.parts.upkeep:Upkeep", "workload", ()),
    "restarts": PartKey("simulator.assembly.parts.upkeep:Upkeep", "workload", ()),
    "autoscaling": PartKey("simulator.assembly.parts.upkeep:Upkeep", "workload"),
    "cluster.cooldown": PartKey("simulator.assembly.parts.upkeep:Upkeep", "health"),
    "cluster.breaker": PartKey("simulator.assembly.parts.upkeep:Upkeep", "health"),
    "cluster.retry": PartKey("simulator.assembly.parts.upkeep:Upkeep", "health"),
    "engine.data_parallel": PartKey("simulator.assembly.parts.ranks:Ranks"),
    "topology.data_parallel": PartKey("simulator.assembly.parts.ranks:Ranks", default=1, is_others=True),
    "engine.experts": PartKey("simulator.assembly.parts.expert_shifts:ExpertShifts", "data_parallel"),
    "pools[].cost_per_hour": PartKey("simulator.assembly.parts.costs:Costs", "model", 0.0),
    "pools[].price_per_gpu_hour": PartKey("simulator.assembly.parts.costs:Costs", "model"),
    "pools[].electricity_per_kwh": PartKey("simulator.assembly.parts.costs:Costs", "model"),
    "pools[].carbon_g_per_kwh": PartKey("simulator.assembly.parts.costs:Costs", "model"),
    "pools[].starts_at_hour": PartKey("simulator.assembly.parts.costs:Costs", "model"),
    "pools[].weight": PartKey("simulator.assembly.parts.quotas:Quotas", "model"),
    "pools[].rpm": PartKey("simulator.assembly.parts.quotas:Quotas", "model"),
    "pools[].tpm": PartKey("simulator.assembly.parts.quotas:Quotas", "model"),
    "prices": PartKey("simulator.assembly.parts.costs:Costs", "output"),
    "power": PartKey("simulator.assembly.parts.costs:Costs", "output"),
    "carbon": PartKey("simulator.assembly.parts.costs:Costs", "output"),
    "electricity": PartKey("simulator.assembly.parts.costs:Costs", "output"),
    "kv_tiers": PartKey("simulator.assembly.parts.kv_tiers:Tiers", "pools"),
    "pools[].kv_tiers": PartKey("simulator.assembly.parts.kv_tiers:Tiers"),
    "workload.client_retry": PartKey("simulator.assembly.parts.client_retries:ClientRetries", "images"),
    "workload.adapters": PartKey("simulator.assembly.parts.adapters:LoraAdapters", "images"),
    "engine.lora": PartKey("simulator.assembly.parts.adapters:LoraAdapters", is_others=True),
    "engine.speculative": PartKey("simulator.assembly.parts.speculation:Speculation", is_others=True),
    "serve": PartKey("simulator.assembly.parts.serving:Serving", "output"),
    "engine.kv_retention": PartKey("simulator.assembly.parts.kv_retention:KvRetention", is_others=True),
}

# Key of summary.json -> its name in the report, and the function that puts its value into words.
FACTS = {
    "speculation": ("speculation", "simulator.results.speculation:sentence"),
    "encode": ("encode pools", "simulator.results.encoding:sentence"),
    "kv_transfer": ("KV transfers", "simulator.results.hand_over:sentence"),
    "programs": ("programs", "simulator.results.programs:sentence"),
    "kv_retention": ("held KV", "simulator.results.kv_retention:sentence"),
    "gateways": ("gateways", "simulator.results.gateways:sentence"),
    "cost": ("cost", "simulator.results.money:sentence"),
    "energy": ("energy", "simulator.results.energy:sentence"),
    "uncertainty": ("uncertainty", "simulator.results.uncertainty:sentence"),
}

# A user's module -> the classes that were loaded from it, "module:Class" -> the class.
_user_classes: dict[str, dict[str, type]] = {}
# Modules of ours that do nothing but ask a user's class -> the module of that class's base.
_ASKING = {name: name for name in (
    "simulator.latency.python_model", "simulator.routing.python_router", "simulator.routing.scoring.python",
    "simulator.routing.disaggregation.python_decider", "simulator.admission.python_admission",
    "simulator.scheduling.python_scheduler")} | {"simulator.engine.operations.scaling": "simulator.scaling.base"}
# Modules that have rows of the table of conflicts (simulator/config/conflicts.py), in an attribute CONFLICTS.
CONFLICTS = tuple(f"simulator.config.{module}" for module in ("context", "engines", "roles", "scorers"))


class NoParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No keys beside the name."""


def load(kind: str, name: str, search: Iterable[str] = ()) -> type:
    """Import the class with this name.

    Parameters
    ----------
    kind : a key of `KINDS`.
    name : a built-in name, one of an entry point, or "module:Class".
    search : folders in which a user's module may lie, see `user_modules`.

    Raises
    ------
    InputErrors
        Unknown name, or a user's module that cannot be imported; without file and key, which the caller knows.
    """
    target = KINDS[kind].entries.get(name)
    if target is not None:
        return imported(target)
    if ":" not in name:
        more = installed(kind)
        if name not in more:
            raise InputErrors([f'no {KINDS[kind].title} "{name}"{did_you_mean(name, [*KINDS[kind].entries, *more])}'])
        name = more[name]
    return _load_from_user(kind, name, search)


def installed(kind: str) -> dict[str, str]:
    """Return the names of a kind that installed packages add: name -> "module:Class"."""
    return {point.name: point.value for point in entry_points(group=f"simulator.{kind}")}


def study_table(kind: str) -> type[msgspec.Struct]:
    """Return the Struct of [study] of a kind of study."""
    return imported(STUDIES[kind])


def part(key: str) -> type:
    """Return the part that reads a key of `PARTS`."""
    return imported(PARTS[key].target)


def parts() -> list[type]:
    """Return all parts."""
    return list(dict.fromkeys(map(part, PARTS)))


def parameters_of(chosen: type) -> type[msgspec.Struct]:
    """Return the Struct of the parameters of a registered or user-given class."""
    return getattr(chosen, "Parameters", None) or NoParameters


def blame(error: BaseException) -> str | None:
    """Say which class of a user raised an error, what and where; None: none did."""
    trace, place = error.__traceback__, None
    while trace is not None:
        frame = trace.tb_frame
        module = frame.f_globals.get("__name__")
        if module in _user_classes:
            place = f'"{_class_of(module, frame)}", line {trace.tb_lineno} of {frame.f_code.co_filename}'
        elif module in _ASKING and place is None:
            place = _asked(_ASKING[module], str(error))
        trace = trace.tb_next
    if place is None and isinstance(error, BadAnswer):
        place = next((f'"{name}"' for classes in _user_classes.values() for name, each in classes.items()
                      if each is error.answered), None)
    return place and f"{place}, raised {type(error).__name__}: {_one_line(error)}"


def _class_of(module: str, frame) -> str:
    """Return the name of the class of a user that a frame belongs to; the module, where several share the code."""
    classes = _user_classes[module]
    asked = [name for name, each in classes.items() if type(frame.f_locals.get("self")) is each]
    words = frame.f_code.co_qualname.split(".")
    found = asked or [name for name in classes if name.partition(":")[2] in words] or list(classes)
    return found[0] if len(found) == 1 else module


def _asked(base: str, text: str) -> str | None:
    """Return the names of users' classes called by a module of ours; one, where the message begins with it."""
    names = [name for classes in _user_classes.values() for name, each in classes.items()
             if any(parent.__module__ == base for parent in each.__mro__)]
    names = [name for name in names if text.startswith(f"{name.partition(':')[2]}.")] or names
    return " or ".join(f'"{name}"' for name in names) or None


def _load_from_user(kind: str, name: str, search: Iterable[str]) -> type:
    from simulator.extending.overrides import fault_of  # only a user's class is looked at

    module, _, attribute = name.partition(":")
    try:
        chosen = getattr(import_beside(module, search), attribute)
    except (Exception, SystemExit) as error:    # the user's module: any exception is a fault of the input
        raise InputErrors([f'cannot import "{name}": {type(error).__name__}: {_one_line(error)}'
                           f"{_exit_place(error)}"]) from error
    if not isinstance(chosen, type):
        raise InputErrors([f'"{name}" is not a class'])
    base = KINDS[kind].base and imported(KINDS[kind].base)
    if base and not issubclass(chosen, base):
        raise InputErrors([f'"{name}" is no {KINDS[kind].title}: expected a subclass of '
                           f'{base.__module__}.{base.__name__}'])
    built_for = getattr(chosen, "API_VERSION", API_VERSION)
    if built_for != API_VERSION:
        raise InputErrors([f'"{name}" was built for API_VERSION {built_for} of the simulator, this one has '
                           f"{API_VERSION}: build it again"])
    parameters = parameters_of(chosen)
    if not (isinstance(parameters, type) and issubclass(parameters, msgspec.Struct)):
        raise InputErrors([f'"{name}": its Parameters is not a msgspec.Struct'])
    if fault := fault_of(kind, chosen, base):
        raise InputErrors([f'"{name}" is no {KINDS[kind].title}: {fault}'])
    _user_classes.setdefault(module, {})[name] = chosen
    return chosen


def _exit_place(error: BaseException) -> str:
    """Return where a program asked to end; nothing for other errors, which have text enough."""
    frame, place = error.__traceback__, ""
    while isinstance(error, SystemExit) and frame is not None:
        place = f", line {frame.tb_lineno} of {frame.tb_frame.f_code.co_filename}"
        frame = frame.tb_next
    return place


def imported(target: str) -> Any:
    """Return the object "module:name"."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
