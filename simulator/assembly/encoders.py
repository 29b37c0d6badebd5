"""The engine's plan of encoders, from encode pools, [embeddings] and [cluster.encode]."""
from simulator import registry
from simulator.assembly.site import Site
from simulator.config.experiment import Experiment
from simulator.domain.embeddings import embedding_bytes
from simulator.errors import InputErrors, KeyFault


def encode_plan(experiment: Experiment):
    """Return engine.encoders.plan.EncodePlan; None without encode pools.

    Raises
    ------
    InputErrors
        The size of an embedding is neither given nor known from a model.
    """
    pools, moved = experiment.encode_pools(), experiment.embeddings
    if not pools:
        return None
    from simulator.engine.encoders.plan import EncodePlan  # imported only when needed

    chosen = experiment.cluster.encode
    router = registry.load("router", chosen.policy if chosen else "round_robin")
    return EncodePlan(
        pools=tuple(_pool(pool, moved.bytes_per_embedding) for pool in pools), router=router,
        router_parameters=chosen.parameters if chosen else registry.parameters_of(router)(),
        bytes_per_s=moved.bandwidth_gb_per_s * 1e9, latency_ns=round(moved.latency_us * 1e3))


def _pool(pool, given_bytes: float | None):
    """Return a pool as the engine takes it."""
    from simulator.engine.encoders.plan import EncodePool

    parameters = pool.engine.parameters
    encoder, tokens = parameters.encoder, parameters.max_num_batched_tokens
    stored = Site(pool, f"pools.{pool.name}.").stored if given_bytes is None else None
    if given_bytes is None and stored is None:
        raise InputErrors([KeyFault("embeddings.bytes_per_embedding: missing; expected a number, or [model]")])
    return EncodePool(
        name=pool.name, model=pool.serves, replicas=pool.at_start, embedding_ns=encoder.embedding_us * 1e3,
        iteration_ns=pool.latency.host.iteration_us * 1e3,
        max_embeddings=encoder.max_num_encoder_input_tokens or tokens, max_jobs=parameters.max_num_seqs,
        cache_embeddings=encoder.cache_tokens or tokens, embedding_bytes=given_bytes or embedding_bytes(stored),
        cost_per_hour=pool.cost_per_hour,
        node=pool.topology.node or (pool.hardware.name if pool.hardware else ""))
