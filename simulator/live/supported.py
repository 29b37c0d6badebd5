"""Features that a live session has: keys of the experiment file, and policies.

A client that leaves has a deadline in the record, so that no policy may read deadlines.
"""
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
    "engine.speculative", "engine.kv_retention", "engine.experts", "cluster.rescheduling", "cluster.routing.queue",
    "cluster.routing.scorers[].name=burst-prefix", "cluster.disaggregation.prefill.scorers[].name=burst-prefix",
    "cluster.disaggregation.decode.scorers[].name=burst-prefix"))
# Policies of the registry that serve does not take, by kind -> name -> why.
AHEAD = "reads requests before they come"
LENGTHS = "needs predicted lengths of answers to requests that have not come yet"
DEADLINES = "orders by deadlines, which no request of a client gives"
WHY_NOT = {
    "scheduler": {"edf": DEADLINES, "lightllm": LENGTHS, "sjf_aging": LENGTHS},
    "router": {"prefix_hash": AHEAD},
    "scorer": {"mm-cache-affinity": "looks for images, which serve does not read"},
    "gateway order": {"edf": DEADLINES, "slack": AHEAD},
}


def why_not(kind: str, name: str) -> str:
    """Return why serve does not take a policy; "": it does.

    kind : of the registry, or "gateway order".
    """
    if kind in registry.KINDS and name not in registry.KINDS[kind].entries:
        return "it is not one of the simulator's own"
    return WHY_NOT.get(kind, {}).get(name, "")


def acts_live(part: type) -> bool:
    """Return whether a part acts while the cluster runs, not on its results alone."""
    target = f"{part.__module__}:{part.__qualname__}"
    return any(key not in ONLY_RESULTS for key, entry in registry.PARTS.items() if entry.target == target)
