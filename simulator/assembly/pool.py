"""A pool of replicas, as the engine takes it."""
from simulator import registry
from simulator.assembly.drafts import modules_in_turn, unpriced_notes
from simulator.assembly.gateway import line_notes
from simulator.assembly.grammar_load import with_vocabulary
from simulator.assembly.kernel_notes import kernel_notes
from simulator.assembly.latency import host_times, latency_model
from simulator.assembly.memory_notes import memory_notes
from simulator.assembly.ranks import limit_notes, lock_step, queue_limits, ranks_per_choice
from simulator.assembly.site import Site
from simulator.assembly.tower_notes import tower_notes
from simulator.engine.plan import Pool
from simulator.errors import InputErrors, KeyFault, collect_faults
from simulator.latency.readings import Readings


def pool_of(site: Site, readings: Readings, cluster) -> Pool:
    """Return a pool as the engine takes it.

    cluster : [cluster] of the experiment.

    Raises
    ------
    InputErrors
        Faults of the facts, the latency model or the KV tier.
    """
    pool, engine, topology = site.pool, site.pool.engine, site.pool.topology
    rules, _ = collect_faults(lambda: lock_step(site), site.check)
    model = latency_model(site, readings)
    towers = _towers(site)
    gpus = topology.tensor_parallel * topology.pipeline_parallel * topology.prefill_context_parallel
    ranks = topology.data_parallel
    per_node = max(site.node.num_accelerators // gpus, 1) if site.node else 1
    return Pool(
        scheduler=site.scheduler, parameters=with_vocabulary(site), latency=model,
        num_gpu_blocks=site.num_gpu_blocks, block_size=site.block_tokens,
        max_model_len=site.max_model_len, enable_prefix_caching=engine.enable_prefix_caching,
        fast_forward=engine.fast_forward, host=host_times(site, model), tier=_tier(site, cluster), name=pool.name,
        replicas=pool.at_start * ranks, max_replicas=pool.max_replicas and pool.max_replicas * ranks, ranks=ranks,
        ranks_per_choice=ranks_per_choice(pool, per_node), lock_step=rules,
        model=pool.serves, role=pool.role, nodes_per_unit=pool.nodes_per_unit,
        cost_per_hour=pool.cost_per_hour / ranks, accelerators=gpus, layer_groups=site.layer_groups,
        item_ns=towers and towers.item_ns, replicas_per_node=per_node, behind_server=True,
        context_range=pool.context_range, queue_limits=queue_limits(pool, per_node),
        draft_modules=modules_in_turn(site),
        notes=(towers.notes if towers else ()) + kernel_notes(site) + tower_notes(site) + memory_notes(site)
        + unpriced_notes(site) + _hit_notes(site) + line_notes(cluster) + limit_notes(pool))


def _towers(site: Site):
    """Return the times of the model's tower; None: an embedding has a price, or the tower none."""
    encoder = getattr(site.pool.engine.parameters, "encoder", None)
    return site.tower_times if encoder is not None and not encoder.is_priced else None


def _hit_notes(site: Site) -> tuple[str, ...]:
    """Return notes on hits in the prefix cache, for readers of the predictions."""
    layers, pool = site.layer_groups, site.pool
    if layers is None or not pool.engine.enable_prefix_caching:
        return ()
    return tuple(layers.hit_notes(pool.kv_tiers is not None or pool.role != "both"))


def _tier(site: Site, cluster):
    """Return a factory of the KV tier of a replica; None: the pool has no tier."""
    pool, engine = site.pool, site.pool.engine
    if pool.kv_tiers is None:
        return None
    from simulator.kv.tiers.protocols.base import TierSite  # imported only when needed

    parameters, protocol = pool.kv_tiers.parameters, registry.load("kv_tier", pool.kv_tiers.protocol)
    eviction = getattr(parameters, "eviction_policy", None)
    tier_site = TierSite(engine.parameters, engine.block_size, site.num_gpu_blocks, pool.topology.tensor_parallel,
                         site.host_kv, site.layer_groups,
                         eviction and registry.load("kv_eviction", eviction), engine.scheduler)
    faults = [f"kv_tiers.{key}: {message}" for key, message in protocol.faults(parameters, tier_site)]
    if faults:
        raise InputErrors(map(KeyFault, faults))
    return protocol.maker(parameters, tier_site)
