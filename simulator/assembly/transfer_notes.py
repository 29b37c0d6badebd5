"""Notes on KV transfers: a rate that no key gives, and decode replicas that are chosen before their requests count."""
from collections import Counter

from simulator.assembly.site import Site
from simulator.domain.kv_link import kv_link
from simulator.domain.kv_transfer import KvTransfer

# Routers that do not go by the load of replicas.
BLIND = ("round_robin", "random", "weighted_random", "session", "consistent_hash", "manual")


def rate_notes(transfer: KvTransfer, site: Site) -> tuple[str, ...]:
    """Return a note on network cards with the rate of the node type.

    Servers of one type have ports of different rates: the H800s of Mooncake's page of vLLM had 25 GB/s a port, hgx-h800
    has 50, and transfers took twice as long as predicted (8.8 against 4.4 ms for 8,192 tokens; 8.7 at their rate).
    Source: kvcache-ai/Mooncake, docs/source/performance/vllm/vllm-v1-pd-performance.md.
    """
    if transfer.bandwidth_gb_per_s is not None or site.deployment is None or site.pool.role != "prefill":
        return ()
    ranks = site.deployment.parallelism.tensor_parallel * site.deployment.parallelism.pipeline_parallel
    cards = site.node.num_accelerators if site.node and transfer.nics_per_transfer == "all" else ranks
    each = kv_link(site.deployment).scaleout_bytes_per_s / ranks / 1e9
    whose = site.pool.topology.node or site.deployment.accelerator.name
    rate = each * cards * transfer.efficiency
    return (f"kv_transfer: between nodes at {rate:,.0f} GB/s, {cards} x {each:g} of {whose} x efficiency "
            f"{transfer.efficiency:g}: ports differ among servers of one type, by a factor of two on Mooncake H800 "
            f"hosts; bandwidth_gb_per_s gives yours",)


def order_notes(plan, policy: str, pools) -> dict[str, tuple[str, ...]]:
    """Return notes on decode replicas that are chosen early, by pool.

    plan : HandOverPlan. policy : router of decode legs. pools : of the ClusterPlan.
    """
    front, is_promised = plan.decode_front, plan.place == "asked"
    if policy in BLIND or not (plan.decode_first and plan.order == "source") or (
            is_promised and front.router.weighs_promised(front.router_parameters, front.scorers)):
        return {}
    decodes, choices = [pool for pool in pools if pool.role == "decode"], Counter()
    for pool in decodes:
        choices[pool.model] += pool.places // pool.ranks_per_choice
    note = (f'cluster.disaggregation: "{policy}" chooses a decode replica when a request arrives, and the replica '
            'counts the request only when its prompt is computed: meanwhile many may get the same one; stage_order = '
            '"prefill_first" chooses it then')
    return {pool.name: (note,) for pool in decodes if choices[pool.model] > 1}
