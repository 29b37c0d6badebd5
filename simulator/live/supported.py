"""Features that a live session has: keys of the experiment file, and policies."""
from simulator import registry

# Keys of parts that only add to results: the run of the recorded session has them.
ONLY_RESULTS = frozenset((
    "output.replica_samples_s", "output.decisions", "prices", "power", "carbon", "electricity",
    "pools[].cost_per_hour", "pools[].price_per_gpu_hour", "pools[].electricity_per_kwh", "pools[].carbon_g_per_kwh",
    "pools[].starts_at_hour", "serve", "cluster.gateway_queue"))
# Keys of parts that act while the cluster runs.
LIVE_KEYS = frozenset((
    "kv_transfer", "cluster.disaggregation", "topology.pd_node_ratio", "pools[].role=prefill", "pools[].role=decode",
    "cluster.routing.filters", "cluster.disaggregation.prefill.filters", "cluster.disaggregation.decode.filters",
    "cluster.gateways", "failures", "restarts", "autoscaling", "cluster.cooldown",
    "cluster.breaker", "cluster.retry", "engine.data_parallel", "topology.data_parallel", "pools[].weight",
    "pools[].rpm", "pools[].tpm", "kv_tiers", "pools[].kv_tiers", "workload.adapters", "engine.lora",
    "engine.speculative", "engine.kv_retention"))
# Policies that know of a request no more than its client has given, and nothing before it comes. A client that leaves
# has a deadline in the record: policies that read deadlines are left out.
SCHEDULERS = ("blis", "faster_transformer", "orca", "sarathi", "sglang", "tensorrt_llm", "vllm", "vllm_v0", "vtc")
AUTOSCALERS = ("apa", "hpa", "kpa", "queue", "schedule", "utilisation")
ADMISSIONS = ("always", "probabilistic", "reject_all", "saturation_shed", "tenant_budgets", "tier_shed", "token_bucket",
              "token_quota")
ROUTERS = ("always_busiest", "bucket", "cache_aware", "consistent_hash", "dynamo", "kvaware", "least_busy_time",
           "least_loaded", "least_latency", "least_throughput", "litellm_latency", "litellm_usage", "lmetric", "lor",
           "manual", "power_of_two", "prefix_preble", "prefix_threshold", "prefixaware", "random", "round_robin",
           "session", "vllm_dp", "vtc", "waiting_limit", "weighted", "weighted_random")
SCORERS = ("active-requests", "kv-utilization", "load-aware", "load-balance", "lora-affinity", "no-hit-lru",
           "precise-prefix-cache", "prefix-affinity", "queue-depth", "running-requests", "session-affinity",
           "token-load", "vllm-dp")
FILTERS = ("concurrency-detector", "prefix-affinity", "session-affinity", "utilization", "utilization-detector")
ORDERS = ("fifo", "priority", "slo_deadline")       # of the gateway's queue


def acts_live(part: type) -> bool:
    """Return whether a part acts while the cluster runs, not on its results alone."""
    target = f"{part.__module__}:{part.__qualname__}"
    return any(key not in ONLY_RESULTS for key, entry in registry.PARTS.items() if entry.target == target)
